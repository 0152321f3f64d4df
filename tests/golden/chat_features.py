"""Small templates, each about one construct of Jinja, written for this project. chat.py renders them."""

WHITE_SPACE = [
    "a\n{% if true %}\n  b\n{% endif %}\nc",
    "a\n  {% if true %}  \n  b\n  {% endif %}\nc\n",
    "a {%- if true %} b {%- endif %} c",
    "a {% if true -%} b {% endif -%} c",
    "a\n  {%+ if true %}\nb\n  {%+ endif %}\nc",
    "a\n{% if true +%}\nb\n{% endif +%}\nc",
    "a\n   {{- 'x' -}}   \n b {{ 'y' }}\nc",
    "  {{ 'x' }}\n  {{ 'y' }}\n",
    "{% if true %}x{% endif %}\n\n\n",
    "a\r\nb\r{% if true %}\r\nc{% endif %}\r\n",
    "{# comment #}\nx {# two\nlines #}\n  {#- tight -#}  \ny {#+ kept +#}\nz",
    "{% raw %}{{ not }} {% code %}{% endraw %}\nx",
    "a {%- raw -%}  {{ x }}  {%- endraw -%} b",
    "a\n  {% raw %}\n {# x #}\n  {% endraw %}\nb",
    "\t{% set a = 1 %}\t{{ a }}\u00a0 {%- if a %} \u3000b{% endif %}",
    "{{ 'a' }}  {% if true %}  {{ 'b' }}{% endif %}",
    "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n",
    "{%if true%}x{%endif%}{{'y'}}{{-'z'-}}",
    "{ { } } %} }} #} {",
    "\n\n{% if true %}\n\nx\n\n{% endif %}\n\n",
]

EXPRESSIONS = [
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ 1e100 }} {{ -0.0 }} {{ 2.5e3 }} {{ 1_000 }} {{ 6 / 3 }}",
    "{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ none == none }} {{ 'a' == 1 }} {{ [1] == (1,) }}",
    "{{ true and 'x' }} {{ false or 'y' }} {{ not 0 }} {{ '' or none or 'z' }} {{ 1 and 0 and 2 }} {{ not true == false }}",
    "{{ 'a' in 'cat' }} {{ 'x' not in 'cat' }} {{ 1 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ not 1 in [2] }} {{ 'a' in missing }} {{ '' in 'x' }}",
    "{{ 'a' ~ 1 ~ 2.5 ~ none ~ true ~ [1] ~ missing }} {{ 1 ~ (2 + 3) }} {{ 'a' 'b' \"c\" }}",
    "{{ 'yes' if true }}|{{ 'yes' if false }}|{{ 'yes' if false else 'no' }}|{{ 1 if false else 2 if false else 3 }}",
    "{{ 'abcdef'[1] }} {{ 'abcdef'[-1] }} {{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[:-2] }} {{ 'abcdef'[-3:] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[4:1:-1] }} {{ 'abc'[10:] }} {{ 'abc'[-10:2] }}",
    "{{ 'naïve 你好🙂x'[2] }} {{ 'naïve 你好🙂x'[6:9] }} {{ 'naïve 你好🙂x'[::-1] }} {{ 'naïve 你好🙂x' | length }}",
    "{{ [1,2,3,4][1:] }} {{ [1,2,3,4][::-1] }} {{ (1,2,3)[:2] }} {{ [1,2,3,4][-2] }} {{ [1,2][5] is defined }} {{ [1,2,3,4,5][3:0:-2] }}",
    "{{ {'a': 1, 'b': {'c': [2]}}.b.c.0 }} {{ {'a': 1}['a'] }} {{ {'a': 1}.get('b', 'no') }} {{ {'a': 1}.get('b') }} {{ {1: 'x'}[1] }} {{ {1: 'x'}[true] }}",
    "{{ [1] + [2, 3] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ [0] * 2 }} {{ 3 * 'x' }} {{ 'x' * -1 }}|",
    "{{ missing }}|{{ missing is defined }}|{{ missing | default('d') }}|{{ none | default('d') }}|{{ '' | default('d', true) }}|{{ missing.x if missing is defined else 'guarded' }}",
    "{{ {'a': none}.a }} {{ {'a': none}.b is defined }} {{ {}.items is defined }} {{ {'items': 3}.items is mapping }} {{ {'items': 3}['items'] }}",
    "{{ (1) }} {{ (1,) }} {{ () }} {{ 1, 2 }} {{ [] }} {{ {} }} {{ [[], {}, ()] }} {{ [1, 'a', none, true, 2.0, \"it's\", 'q\"', 'b\\\\n\\n'] }}",
    "{{ {'a': 'b', 1: [2], none: (3,), 'n': {'x': 'é'}} }}",
    "{{ ['tab\\t', 'nul\\x00', '\\x7f', '\\xa0', '\\u200b', 'é', '\\U0001f642', '\\ufeff', 'both \\' and \"'] }}",
    "{{ 'esc: \\\\ \\' \\\" \\n \\t \\x41 \\u00e9 \\101 \\q' }} {{ \"dq 'sq'\" }} {{ 'sq \"dq\"' }}",
    "{{ +3 }} {{ -(-3) }} {{ - 2.5 }} {{ not not 1 }} {{ 1 - -1 }} {{ (-1) | abs }} {{ -1 | abs }}",
    "{{ 'a,b'.split(',')[1] }} {{ ('x' ~ 'y').upper()[0] }} {{ 'a b'.split() | length }} {{ [1, 2] | first + 1 }} {{ 'a' | upper ~ 'b' }}",
    "{{ {'a': 1, 'b': 2, 'a': 3} }} {{ {'x': 1} == {'x': 1.0} }} {{ true + true }} {{ 5 // true }}",
]

STATEMENTS = [
    "{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}{% for x in missing %}x{% else %}undefined{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in range(10) if x % 3 == 0 %}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in [1,2,3,4,5] %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for c in 'añb' %}[{{ c }}]{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}",
    "{% for i in [1,2] %}{% for j in [1,2] %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0, s='') %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.x is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set d = (3) %}{{ d }}",
    "{% set t %}block {{ 1 + 1 }}{% endset %}[{{ t }}]{% set u | upper | trim %} abc {% endset %}[{{ u }}]",
    "{% macro m(a, b='B', c=none) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(a='x', c='y') }}{{ m() }}{{ m(1, b=2) | upper }}",
    "{% macro outer(x) %}{{ inner(x) }}!{% endmacro %}{% macro inner(x) %}[{{ x }}]{% endmacro %}{{ outer('v') }}",
    "{% macro fact(n) %}{{ n if n <= 1 else n * (fact(n - 1) | int) }}{% endmacro %}{{ fact(5) }}",
    "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ 1 }}{% endcall %}",
    "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each(['a', 'b']) %}{{ i }}{{ v }};{% endcall %}",
    "{% set g = 'global' %}{% macro show() %}{{ g }}{% endmacro %}{% set g = 'later' %}{{ show() }}{% for i in [1] %}{% set g = 'loop' %}{{ show() }}{% endfor %}",
    "{% filter upper %}abc {{ 'def' }}{% endfilter %}{% filter replace('a', 'b') | trim %} aa {% endfilter %}",
    "{% if false %}a{% elif 1 %}b{% else %}c{% endif %}{% if 0 %}{% elif none %}{% else %}d{% endif %}{% if messages %}e{% endif %}",
    "{% for m in messages %}{{ loop.index0 }}:{{ m['role'] }}:{{ m.content | trim }}|{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %} {% endfor %}",
    "{% macro kv(d) %}{% for k, v in d | dictsort %}{{ k }}:{{ v if v is not mapping else '{' ~ kv(v) ~ '}' }},{% endfor %}{% endmacro %}{{ kv({'b': 1, 'a': {'d': 2, 'C': 3}}) }}",
    "{% for x in [1, 2, 3] %}{% set keep = x > 1 %}{% if keep %}{{ x }}{% endif %}{% endfor %}{{ keep is defined }}",
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{{ t.function | tojson }}{% endfor %}{% endif %}",
    "{% set loop_messages = messages[1:] %}{{ loop_messages | length }}{{ messages[-1]['content'] }}{{ messages[0].name is defined }}",
    "{% macro named() %}{{ x }}{% endmacro %}{% for x in [1, 2] %}{{ named() }}{% endfor %}.",
    "{% for key in {'b': 1, 'a': 2} | list | sort %}{{ key }}{% endfor %}{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }}{% endfor %}",
    "{% set d = dict(a=1, **{'b': 2}) %}{{ d }}{{ dict({'x': 1}, y=2) }}{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'b': 3, 'a': 4}) }}",
]

FILTERS = [
    "{{ {'b': [1, 2.5, none, true], 'a': 'é<>&\\'\"\\n\\t\\\\'} | tojson }}",
    "{{ {'b': [1, {}], 'a': [], 'c': {'d': ()}} | tojson(indent=2) }}|{{ [1, [2]] | tojson(indent=0) }}",
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ 'é🙂\\x7f' | tojson(ensure_ascii=true) }} {{ [1, {'a': 2}] | tojson(separators=(',', ':')) }} {{ '\\x00\\x1f' | tojson }} {{ 1e20 | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}",
    "[{{ '  x y\\n' | trim }}][{{ 'xxaxx' | trim('x') }}][{{ '\\u3000\\u00a0a\\u2003' | trim }}]",
    "{{ [1, 2] | length }}{{ 'añ' | count }}{{ {'a': 1} | length }}{{ missing | length }}{{ '' | length }}",
    "{{ 5 | string ~ 1 }} {{ none | string }} {{ [1] | string }} {{ 'abc' | list }} {{ {'a': 1} | list }} {{ (1, 2) | list }}",
    "{{ {'a': 1, 'b': 2} | items | list }} {{ missing | items | list }} {{ {'b': 2, 'A': 1, 'c': 0} | dictsort }} {{ {'b': 2, 'a': 3} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(true, reverse=true) }}",
    "{{ [{'r': 'a', 'n': 1}, {'r': 'b'}, {'n': 0}] | selectattr('r') | list }} {{ [{'r': 'a'}, {'r': 'b'}] | selectattr('r', 'equalto', 'b') | list }} {{ [{'r': 'a'}, {'q': 1}] | rejectattr('r', 'defined') | list }}",
    "{{ [1, 0, 2, none] | select | list }} {{ [1, 2, 3, 4] | reject('even') | list }} {{ [1, 5, 9] | select('>', 4) | list }} {{ ['a', 1] | select('string') | list }} {{ none | selectattr('x') | list }}",
    "{{ [{'a': {'b': 1}}, {'a': {'b': 2}}] | map(attribute='a.b') | list }} {{ ['x', 'y'] | map('upper') | join('-') }} {{ [{}, {'k': 1}] | map(attribute='k', default='no') | list }} {{ [[1, 2], [3, 4]] | map(attribute=1) | list }} {{ ['a b'] | map('replace', ' ', '_') | first }}",
    "{{ [1, 'a', none] | join(', ') }} {{ [{'n': 1}, {'n': 2}] | join('+', attribute='n') }} {{ 'abc' | join('.') }} {{ [] | join }}|",
    "{{ 'hello wORLD foo-bar (baz' | title }} {{ 'hello wORLD' | capitalize }} {{ \"it's o'neil\".title() }} {{ 'ÄÖé straße'[:5] | lower }} {{ 'élan'.upper() }} {{ 'aB1c'.title() }}",
    "{{ 'aXbXc' | replace('X', '-') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'abc'.replace('b', '') }} {{ 'x.y.z'.replace('.', '', 1) }}",
    "{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ [1, 3, 2] | sort(reverse=true) }} {{ [{'n': 2}, {'n': 1}] | sort(attribute='n') }}",
    "{{ [1, 2, 1, 'a', 'A'] | unique | list }} {{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ [1, 2] | first }}{{ [1, 2] | last }}{{ [] | first is defined }} {{ 'xyz' | first }} {{ [3, 1] | min }}{{ [3, 1] | max }}{{ ['b', 'A'] | min }}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb' | indent('>>') }}|{{ '' | indent(first=true) }}|{{ 'a\\n' | indent }}",
    "{{ '42' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ -3.9 | int }} {{ ' 5 ' | int }} {{ none | int }} {{ '1.5' | float }} {{ 2 | float }} {{ 'x' | float }} {{ 'ff' | int(base=16) }}",
    "{{ 'x' | safe }}{{ '<' | safe ~ '<' }}{{ 'a&' | safe + '<b>\"' }} {{ -5 | abs }} {{ none | d('x') }}{{ missing | d }}| {{ [1, 2, 3] | map('string') | join }}",
    "{{ '  a  b ' | trim | upper | replace(' ', '') | list | join('/') }} {{ messages | map(attribute='role') | unique | list | tojson }}",
]

METHODS = [
    "{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ ' a b c '.split(none, 1) }} {{ 'a-b-c'.split('-', 1) }} {{ 'a-b-c'.rsplit('-', 1) }} {{ 'a b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a<t>b<t>c'.split('<t>')[-1] }} {{ 'x'.split('x') }}",
    "[{{ '  x '.strip() }}][{{ '  x '.lstrip() }}][{{ '  x '.rstrip() }}][{{ '--x-'.strip('-') }}][{{ 'xyabcyx'.strip('xy') }}][{{ '\\n\\nx\\n'.strip('\\n') }}][{{ 'ééaé'.lstrip('é') }}][{{ ' '.strip() }}]",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('') }} {{ 'abc'.find('c') }} {{ 'añc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.rfind('b') }} {{ 'banana'.count('an') }}",
    "{{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ 'aBc dEF'.capitalize() }} {{ 'x'.join(['a', 'b']) }} {{ 'a\\nb\\r\\nc'.splitlines() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ '{} and {} {0}'[:9].format(1, 'b') }} {{ '{0}{1}{0} {x} {{}}'.format('a', 'b', x=3) }}",
    "{{ {'a': 1, 'b': 2}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.items() | list }} {{ {'a': 1}.keys() | length }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ {'a': 1}.copy() }}",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%A, %B %-d %H:%M') }} {{ range(3) | list }} {{ range(1, 8, 3) | list }} {{ range(3, 0, -1) | list }} {{ range(5)[1] }} {{ range(4) | length }} {{ range(0) | list }}",
]

TESTS = [
    "{% for x in [none, true, 1, 1.5, 'a', [1], (1,), {'a': 1}, missing, range(2)] %}{{ x is defined }}{{ x is none }}{{ x is string }}{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is boolean }}{{ x is mapping }}{{ x is sequence }}{{ x is iterable }}{{ x is true }}{{ x is false }}{{ x is undefined }};{% endfor %}",
    "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 'a' is in ['a'] }}{{ 1 is not none }}{{ not 1 is none }}{{ none is not defined }}",
    "{{ {'a': 1}.items() is sequence }}{{ {'a': 1}.items() is iterable }}{{ raise_exception is callable }}{{ raise_exception is defined }}{{ [1] | map('string') is iterable }}{{ (missing is not defined) and true }}",
]

ERRORS = [
    "{{ missing.x }}", "{{ missing + 1 }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ raise_exception('said so') }}", "{{ none | length }}",
    "{{ 'a' | nofilter }}", "{{ 1 is notest }}", "{% for x in 5 %}{% endfor %}", "{% set a, b = [1] %}", "{{ missing() }}",
    "{{ [1].append(2) }}", "{{ 'a'.nomethod() }}", "{{ {[1]: 2} }}", "{{ 1 < 'a' }}", "{{ missing | tojson }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{{ 'x' % }}", "{% if %}", "{% for x in %}{% endfor %}", "{{ (1 }}", "{% if 1 %}", "{{ 'abc }}",
    "{{ range(1000000000) }}", "{{ ([1] | map('string'))[0].x }}", "{{ {'a': 1}.items()[0].x }}", "{{ missing[0] }}", "{% set x.y = 1 %}",
    "{% include 'x' %}", "{{ 1 | join }}", "{{ -'a' }}", "{{ not }}", "{{ [1, 2 }}", "{# no end", "{% raw %}x", "{{ 1 if }}", "{% endfor %}",
]

# Of the records of chat_cases.WITH_NULLS.
NULLS = [
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "{% for m in messages %}{{ m.content is defined }} {{ 'tool_calls' in m }} {{ m | length }} {{ m.keys() | list }}\n{% endfor %}",
    "{{ messages | tojson }}\n{{ tools | tojson }}\n{{ tools is none }} {{ documents is none }}",
    "{% for m in messages %}{% if m.content is string %}s{% elif m.content is not none %}l{% for p in m.content %}{{ p }}{% endfor %}{% endif %}{% endfor %}",
    "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}{{ c.id }} {{ c.function.arguments | items | list }}{% endfor %}{% endfor %}",
]

FEATURES = WHITE_SPACE + EXPRESSIONS + STATEMENTS + FILTERS + METHODS + TESTS + ERRORS
