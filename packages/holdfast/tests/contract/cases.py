"""All cases of the contract, by name."""

from contract import sql_cases, storage_cases, store_cases
from contract.contract_do import Case

CASES: dict[str, Case] = {
    case.name: case
    for module in (storage_cases, sql_cases, store_cases)
    for case in vars(module).values()
    if isinstance(case, Case)
}
