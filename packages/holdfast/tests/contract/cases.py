"""All cases of the contract, by name."""

from contract import database_cases, kv_cases, storage_cases
from contract.contract_do import Case

CASES: dict[str, Case] = {
    case.name: case
    for module in (storage_cases, database_cases, kv_cases)
    for case in vars(module).values()
    if isinstance(case, Case)
}
