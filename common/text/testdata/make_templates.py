#!/usr/bin/env python3
"""Makes templates.json: small templates and what Jinja gives for them as transformers sets it up.

    pip install jinja2==3.1.6 && python3 make_templates.py
"""

import json
from pathlib import Path

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VALUES = {
    "s": "it's \"q\"\n\u00e9\u200b\\", "f": 1.0, "small": 1e-7, "big": 1e22, "third": 1 / 3,
    "n": None, "t": True, "i": -3, "l": [1, "a", None, 2.5], "e": [], "z": "",
    "d": {"b": 1.0, "a": [True, {"k": "v'"}], "\u00fc": "<&>"},
    "pad": " \u00a0\x1c x y \t\n", "lines": "a\n\nb\r\nc\u2028d\n", "w": "one  two three",
}

TEMPLATES = [
    "{{ s }}|{{ f }}|{{ small }}|{{ big }}|{{ third }}|{{ n }}|{{ t }}|{{ i }}|{{ undef }}|",
    "{{ l }}|{{ d }}|{{ e }}|{{ [s] }}|{{ (1,) }}|{{ (1, 'b') }}",
    "{{ 'a' ~ 1 ~ t ~ n ~ 2.0 ~ 'z' }}", "{{ l | join(', ') }}|{{ l | join }}|{{ d | join('-') }}",
    "{{ d | tojson }}", "{{ d | tojson(indent=2) }}", "{{ l | tojson(separators=(',', ':')) }}",
    "{{ s | tojson }}", "{{ d | tojson(ensure_ascii=true, sort_keys=true) }}", "{{ e | tojson }}",
    "{{ e | tojson(indent=4) }}{{ {} | tojson(indent=4) }}", "{{ [small, big, f] | tojson }}",
    "{% for v in [s, f, n, t, i, l, d, undef, e, z] %}{{ v is iterable }} {{ v is sequence }} "
    "{{ v is mapping }} {{ v is string }} {{ v is number }} {{ v is integer }} {{ v is float }} "
    "{{ v is boolean }} {{ v is none }} {{ v is defined }} {{ v is true }}|{% endfor %}",
    "{{ undef | default('x') }}{{ z | default('y', true) }}{{ z | default('q', boolean=true) }}"
    "{{ n | default('never') }}", "{{ '12' | int }} {{ ' 7 ' | int }} {{ 'x' | int(5) }} "
    "{{ 2.9 | int }} {{ -2.9 | int }} {{ '3.7' | int }} {{ n | int(default=4) }} {{ t | int }}",
    "{{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ 'x' | float(2.5) }}",
    "[{{ pad | trim }}][{{ pad.strip() }}][{{ 'xxaxx' | trim('x') }}][{{ 'xay'.lstrip('x') }}]",
    "{{ lines.splitlines() }}{{ lines.splitlines(true) }}",
    "{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}"
    "|{{ 'a\\nb' | indent('>> ') }}",
    "{{ w.split() }}{{ w.split(' ') }}{{ w.split(none, 1) }}{{ w.rsplit(' ', 1) }}"
    "{{ w.rsplit(maxsplit=1) }}{{ pad.split() }}",
    "{{ w.partition(' ')[2] }}|{{ w.rpartition(' ')[0] }}|{{ w.removeprefix('one') }}|"
    "{{ w.removesuffix('three') }}|{{ '-7'.zfill(4) }}|{{ 'ab'.center(5, '*') }}|"
    "{{ 'abc'.center(6, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3) }}|",
    "{{ w.title() }}{{ w.upper() }}{{ w.startswith(('x', 'on')) }}{{ w.find('two') }}"
    "{{ w.replace('o', '0', 1) }}{{ w.count('o') }}{{ ', '.join(['a', 'b']) }}",
    "{{ d.items() | list }}{{ d.keys() | list }}{{ d.get('q', 'none') }}{{ d.get('q') }}",
    "{% for k, v in d.items() %}{{ loop.index0 }}{{ k }}={{ v }}{{ ',' if not loop.last }}"
    "{% endfor %}", "{% set ns = namespace(x=0) %}{% for v in [1, 2, 3, 4] %}{% if v == 3 %}"
    "{% break %}{% endif %}{% set ns.x = ns.x + v %}{% endfor %}{{ ns.x }}",
    "{%- if t %}\n  yes\n{%- endif %}\n  {% if t %}\n    block\n  {% endif %}\nend\n",
    "{% macro m(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}",
    "{{ l[1:] }}{{ l[::-1] }}{{ s[:4] }}{{ l[-1] }}{{ d['a'][1].k }}{{ d.missing is defined }}",
    "{{ [{'r': 'u', 'v': 1}, {'r': 'a', 'v': 2}] | selectattr('r', 'equalto', 'a') | list }}"
    "{{ [{'r': 'u'}, {}] | map(attribute='r') | list | length }}{{ l | length }}{{ s | length }}",
    "{{ 'a' in 'abc' }}{{ 'a' in l }}{{ 'b' in d }}{{ 'x' not in l }}{{ 7 // 2 }}{{ 7 / 2 }}"
    "{{ 2 ** 3 }}{{ -7 % 3 }}{{ 'ab' * 2 }}{{ 1 if z else 2 }}{{ [1] + [2] }}",
    "{{ l | first }}{{ l | last }}{{ [3, 1, 2] | sort }}{{ [1, 1, 2] | unique | list }}"
    "{{ d | dictsort }}{{ 'aXb' | lower }}{{ 'a' | upper }}{{ 'ab' | capitalize }}"
    "{{ [1, 2] | sum }}{{ f | string }}{{ l | string }}{{ 2.567 | round(1) }}",
]


def dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[loopcontrols])
    env.filters["tojson"] = dumps
    cases = [{"template": source, "kwargs": VALUES,
              "text": env.from_string(source).render(**VALUES)} for source in TEMPLATES]
    out = Path(__file__).parent / "templates.json"
    out.write_text(json.dumps(cases, ensure_ascii=False))


if __name__ == "__main__":
    main()
