"""The swap of the example answers: its ids, and the transaction in our own types."""

from tocsin.stacks import ContractCall, MinedAt, Transaction

TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
WALLET = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
POOL = "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M.stableswap-stx-ststx-v-1-2"
STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
SBTC = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token"

SWAP = Transaction(
    tx_id=TXID,
    sender=WALLET,
    sponsored=False,
    fee=3000,
    status="success",
    type="contract_call",
    contract_call=ContractCall(POOL, "swap-x-for-y"),
    mined=MinedAt(7929497, "0x" + "a1" * 32, 3, 1778786400),
    canonical=True,
    event_count=3,
)
