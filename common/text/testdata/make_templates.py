#!/usr/bin/env python3
"""Makes templates.json: small templates and what transformers gives for them.

    pip install transformers==5.23.0 jinja2==3.1.6 && python3 make_templates.py
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

VALUES = {
    "s": "it's \"q\"\n\u00e9\u200b\\", "f": 1.0, "small": 1e-7, "big": 1e22, "third": 1 / 3,
    "n": None, "t": True, "i": -3, "l": [1, "a", None, 2.5], "e": [], "z": "",
    "d": {"b": 1.0, "a": [True, {"k": "v'"}], "\u00fc": "<&>"},
    "pad": " \u00a0\x1c x y \t\n", "lines": "a\n\nb\r\nc\u2028d\n", "w": "one  two three",
    "chat": [
        {"role": "system", "content": "Be <brief>."},
        {"role": "user", "content": " hi "},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "abc123def", "type": "function",
         "function": {"name": "f", "arguments": {"x": 1, "y": "z\u00e9", "f": 1.0}}}]},
        {"role": "tool", "content": "42", "tool_call_id": "abc123def", "name": "f"},
        {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
    ],
    "kit": [{"type": "function", "function": {"name": "f", "description": "does \"it\" <x> \u00e9",
             "parameters": {"type": "object", "required": ["x"], "properties": {
                 "x": {"type": "integer", "default": 1.5, "enum": [1, 2]}}}}}],
    "documents": [{"title": "One", "text": "first"}, {"title": "Two", "text": "second"}],
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
    "{% generation %}a{% endgeneration %}b{%- for m in chat %}{%- if m.role == 'assistant' -%}"
    "{% generation %}{{ m.content }}{%- endgeneration -%}{%- else %}{{ m.role }}{% endif %}{% endfor %}",
    "{% for m in chat %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index }}{{ loop.revindex }}"
    "{{ loop.cycle('a', 'b') }}{{ loop.previtem.role }}{% if loop.index > 3 %}{% break %}{% endif %}"
    "{% endfor %}",
    "{{ chat | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ chat | selectattr('tool_calls') | list | length }}"
    "{{ chat | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | join(',') }}"
    "{{ chat | selectattr('tool_calls', 'defined') | map(attribute='role') | list }}"
    "{{ chat | map(attribute='name', default='none') | list }}",
    "{{ chat[1:-1] | length }}{{ chat[::-1][0].role }}{{ chat[-1]['content'][0].text }}"
    "{{ chat[:2] | map('length') | list }}{{ chat[99] }}{{ chat[99] is defined }}{{ chat[0].missing }}",
    "{{ kit | tojson }}", "{{ kit | tojson(indent=4) }}", "{{ kit[0].function | tojson(indent=2) | indent(2) }}",
    "{{ chat[2].tool_calls[0].function.arguments | tojson }}{{ chat[2].tool_calls[0].function.arguments }}"
    "{{ chat[2].tool_calls[0].function.arguments is mapping }}{{ chat[0] }}",
    "{% for d in documents %}{{ d.title }}: {{ d['text'] }}\n{% endfor %}{{ documents | tojson }}",
    "{% for m in chat %}{% if m.content is string %}s{% elif m.content is iterable %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<{{ p.type }}>{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}",
    "{%- set ns = namespace(index=0, names=[]) -%}{%- for m in chat -%}{%- if not (m.role == 'tool' or "
    "m.tool_calls is defined) -%}{%- set ns.index = ns.index + 1 -%}{%- set ns.names = ns.names + "
    "[m.role] -%}{%- endif -%}{%- endfor -%}{{ ns.index }}{{ ns.names }}",
    "{% macro rec(x, d) %}{{ d }}{% if x > 0 %}{{ rec(x - 1, d + 1) }}{% endif %}{% endmacro %}{{ rec(5, 0) }}"
    "{% macro wrap(x) %}[{{ x }}{{ caller() }}]{% endmacro %}{% call wrap(1) %}inner{% endcall %}",
    "{% for role, group in chat | groupby('role') %}{{ role }}{{ group | length }};{% endfor %}"
    "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | slice(2) | list }}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}@"
    "{{ loop.depth }}{% endif %}{% endfor %}{% for i in range(1, 10, 3) %}{{ i }}{% endfor %}"
    "{% for i in range(5) if i % 2 %}{{ i }}{% else %}none{% endfor %}",
    "{% set x %}block {{ t }}{% endset %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}"
    "{% with a=3 %}{{ a }}{% endwith %}{% filter upper %}abc{{ 'd' }}{% endfilter %}"
    "{% raw %}{{ not }} {% rendered %}{% endraw %}",
    "{{ '%s-%s' | format('a', 3) }}{{ '{} {n}'.format('a', n=1) }}{{ 'aaa' | replace('a', 'b', 2) }}"
    "{{ 'a b c' | wordcount }}{{ 'abc'[::-1] }}{{ 'h\u00e9llo'[1] }}{{ range is callable }}{{ 1 is callable }}",
    "{% set sep = joiner(', ') %}{% for i in [1, 2] %}{{ sep() }}{{ i }}{% endfor %}"
    "{% set turn = cycler('a', 'b') %}{{ turn.next() }}{{ turn.next() }}{{ turn.next() }}",
    "{% for m in chat -%}\n  {{ m.role }}\n{%- endfor %}\n  {% if true %}  \n   x  \n  {% endif %}  \ny\n",
    "a\n    {%- if true %}\n  b\n    {%- endif %}\n\n", "\n  {% set a = 1 %}\n\n{{ a }}\n",
]


def main():
    cases = [{"template": source, "text": _compile_jinja_template(source).render(**VALUES)}
             for source in TEMPLATES]
    out = Path(__file__).parent / "templates.json"
    out.write_text(json.dumps({"kwargs": VALUES, "cases": cases}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
