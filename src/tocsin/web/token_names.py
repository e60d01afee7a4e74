"""Names of tokens for people. `tokens.js` has the same table for pages drawn by scripts."""

from typing import Final

# By contract, so that no other token can pass for one of them.
SYMBOLS: Final = {
    "stx": "STX",
    "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token": "sBTC",
    "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token": "stSTX",
    "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx": "USDCx",
    "SP3Y2ZSH8P7D50B0VBTSX11S7XSG24M1VB9YFQA4K.token-aeusdc": "aeUSDC",
    "SP3K8BC0PPEVCV7NZ6QSRWPQ2JE9E5B6N3PA0KBR9.token-susdt": "sUSDT",
    "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token": "USDA",
    "SP102V8P0F7JX67ARQ77WEA3D3CFB5XW39REDT0AM.token-alex": "ALEX",
    "SP3NE50GEXFG9SZGTT51P40X2CKYSZ5CC4ZTZ7A2G.welshcorgicoin-token": "WELSH",
    "SP1AY6K3PQV5MRT6R4S671NWW2FRVPKM0BR162CT6.leo-token": "LEO",
    "SP1Y5YSTAHZ88XYK1VPDH24GY0HPX5J4JECTMY4A1.velar-token": "VELAR",
    "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.arkadiko-token": "DIKO",
}


def token_name(token: str) -> str:
    """Its symbol, or else its asset's name, followed by its contract's name if it looks like a symbol."""
    contract, _, asset = token.partition("::")
    if contract in SYMBOLS:
        return SYMBOLS[contract]
    name = asset or contract.rpartition(".")[2]
    is_taken = name.lower() in {symbol.lower() for symbol in SYMBOLS.values()}
    return token.partition(".")[2] if is_taken else name
