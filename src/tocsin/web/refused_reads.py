"""Responses to requests over a limit, without routing: refusing a flood must not cost more than answering it."""

from tocsin.errors import RequestRefused
from tocsin.web.prepared_response import Form, form_of
from tocsin.web.respond import error_response
from tocsin.web.security import RawHeaders, with_security

FORMS_MAX = 256


class RefusedReads:
    """Builds one response for each sentence. There are few, because they differ only in the seconds to wait."""

    def __init__(self, headers: RawHeaders) -> None:
        self._headers = headers
        self._forms: dict[str, Form] = {}

    def form_of(self, refusal: RequestRefused) -> Form:
        sentence = str(refusal)
        form = self._forms.get(sentence)
        if form is None:
            response = error_response(refusal)
            headers = [*with_security(response.raw_headers, https=False), *self._headers]
            form = form_of(refusal.status, headers, bytes(response.body))
            if len(self._forms) < FORMS_MAX:
                self._forms[sentence] = form
        return form
