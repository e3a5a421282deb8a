"""The tags and functions that templates of today's models use."""

from __future__ import annotations

from datetime import datetime

import pytest
from jinja2 import TemplateError

from tokenpipe.api.template_environment import template_environment


def render(source: str, **values: object) -> str:
    environment = template_environment(lambda: datetime(2026, 7, 9, 10, 11))
    return environment.from_string(source).render(values)


@pytest.mark.case("F31")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for i in items %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{% for i in items %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
        ("a{% generation %}b{{ items[0] }}{% endgeneration %}c", "ab1c"),
        (
            "{% for i in items %}{% generation %}{{ i }}{% break %}{% endgeneration %}{% endfor %}",
            "1",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "09 Jul 2026"),
        ("{{ {'b': 'ü<', 'a': 1} | tojson }}", '{"b": "ü<", "a": 1}'),
        (
            "{{ {'b': 1, 'a': 'ü'} | tojson(indent=1, sort_keys=True) }}",
            '{\n "a": "ü",\n "b": 1\n}',
        ),
        ("{{ [1, 2] | tojson(separators=(',', ':'), ensure_ascii=True) }}", "[1,2]"),
    ],
)
def test_what_templates_of_today_use(source: str, text: str) -> None:
    assert render(source, items=[1, 2, 3]) == text


def test_a_template_may_refuse_and_may_not_break_out() -> None:
    with pytest.raises(TemplateError, match="roles"):
        render("{{ raise_exception('roles') }}")
    with pytest.raises(TemplateError):
        render("{{ items.append(1) }}", items=[1])
    with pytest.raises(TemplateError):
        render("{{ strftime_now.__globals__.now }}")
