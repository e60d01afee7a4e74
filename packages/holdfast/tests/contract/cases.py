"""All cases of the contract, by name."""

from contract import storage_cases, store_cases
from contract.contract_do import Case

CASES: dict[str, Case] = {
    case.name: case
    for module in (storage_cases, store_cases)
    for case in vars(module).values()
    if isinstance(case, Case)
}
