import { describe, expect, it } from 'vitest';
import { PythonTemplate, TemplateRaised } from './python-template.js';

const render = (source: string, variables: Record<string, unknown> = {}): string =>
  new PythonTemplate(source).render(variables, new Date(2024, 1, 5));

/** Expected texts are what Jinja 3.1 gives. */
describe('PythonTemplate', () => {
  it.each([
    ["{{ 'a b  c '.split(none, 1) }}", "['a', 'b  c ']"],
    ["{{ 'a,b,c'.split(',', maxsplit=1) }}", "['a', 'b,c']"],
    ["{{ 'a,b,c'.rsplit(',', 1) }}", "['a,b', 'c']"],
    ["{{ ['a', 1, none] | join(', ') }}", 'a, 1, None'],
    ["{{ '😀b'.find('b') }} {{ 'x'.find('b') }}", '1 -1'],
    ["{{ 'aXbX'.replace('X', '$&') }}", 'a$&b$&'],
    ['{{ -7 % 3 }} {{ 7 % -3 }} {{ 5.5 % 2 }}', '2 -2 1.5'],
    ['{{ range(3) | list }} {{ range(5, 1, -2) | list }}', '[0, 1, 2] [5, 3]'],
    ["{{ dict(a=1, b='x') }}", "{'a': 1, 'b': 'x'}"],
    ["{{ {'count': 3}.count }}", '3'],
    ['{%- macro f(x) -%}<{{ x }}>{%- endmacro -%}{{ f(none) }}{{ f(true) }}', '<None><True>'],
    ["{% set ns = namespace(x=false) %}{{ ns.x }}{% set ns.x = 'y' %}{{ ns.x }}", 'Falsey'],
    ['{% set t %}{{ 1.0 }}{% endset %}{{ t }}', '1.0'],
    ['{{ nothing }}{{ (nothing.deeper is defined) if nothing is defined }}|', '|'],
    ["{{ 'x' | upper | list | join('-') }}", 'X'],
    ["{{ '  x' | trim | length }}{{ 'xxy' | trim('x') }}", '1y'],
    ['a\n{% if true %}\nb\n{% endif %}\nc\n', 'a\nb\nc'],
  ])('renders %s', (source, expected) => {
    expect(render(source)).toBe(expected);
  });

  it('tells what a template refuses from what fails', () => {
    expect(() => render("{{ raise_exception('no ' ~ who) }}", { who: 'you' })).toThrow(TemplateRaised);
    expect(() => render("{{ raise_exception('no ' ~ who) }}", { who: 'you' })).toThrow('no you');
    for (const source of [
      "{{ 'a' + 1 }}",
      '{{ none | length }}',
      '{{ 1 % 0 }}',
      '{{ [1] | select("nope") | list }}',
      '{{ f() }}',
      '{{ range(1, 10, 0) }}',
      '{{ range(10000000) }}',
      '{% for x in 3 %}{% endfor %}',
    ]) {
      expect(() => render(source)).toThrow();
      expect(() => render(source)).not.toThrow(TemplateRaised);
    }
  });

  it('evaluates each expression once', () => {
    // Nesting is the case where evaluating an operand twice would grow beyond bounds.
    let source = "'x'";
    for (let i = 0; i < 60; i++) source = `(${source} + '' ~ '').strip() | trim`;
    expect(render(`{{ ${source} }}`)).toBe('x');
  });

  it('renders again and again with the same result', () => {
    const template = new PythonTemplate('{% for m in messages %}{{ m }}{% endfor %}');
    const once = template.render({ messages: 'ab' }, new Date());
    expect(template.render({ messages: 'ab' }, new Date())).toBe(once);
  });
});
