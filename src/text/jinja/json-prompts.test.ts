import { describe, expect, it } from 'vitest';
import { readPacked } from '../../../test/fixtures/read-packed.js';
import { parseLossless } from '../lossless-json.js';
import { PythonTemplate } from './python-template.js';

interface Case {
  readonly template: string;
  readonly json: string;
  readonly rendered: string;
}
/** JSON texts, read and printed by Python's json and Jinja. */
const fixture = readPacked('test/fixtures/text/json-prompts.json.br') as {
  readonly cases: readonly Case[];
  readonly arithmetic: Case;
};

const render = (template: string, tools: unknown): string =>
  new PythonTemplate(template).render({ tools }, new Date(0));

describe('JSON in a chat template', () => {
  it.each(fixture.cases)('$template prints $json as Python does', ({ template, json, rendered }) => {
    expect(render(template, [{ v: parseLossless(json) }])).toBe(rendered);
  });

  it('counts with large integers and whole floats as Python does', () => {
    const { template, json, rendered } = fixture.arithmetic;
    expect(render(template, [parseLossless(json)]).split(' ')).toEqual(rendered.split(' '));
  });

  it('takes JavaScript values for what their JSON says', () => {
    const shared = { n: 1 };
    const value = {
      big: 12345678901234567890n,
      small: -5n,
      whole: 1e20,
      float: 1e21,
      nan: Number.NaN,
      zero: -0,
      left: undefined,
      date: new Date(0),
      map: new Map<string, unknown>([
        ['2', shared],
        ['1', shared],
      ]),
    };
    expect(render('{{ tools | tojson }}', value)).toBe(
      '{"big": 12345678901234567890, "small": -5, "whole": 100000000000000000000, "float": 1e+21, "nan": NaN, "zero": 0, ' +
        '"date": "1970-01-01T00:00:00.000Z", "map": {"2": {"n": 1}, "1": {"n": 1}}}',
    );
  });

  it('refuses what takes no end', () => {
    for (const source of [
      '{{ tools ** 99999999 }}',
      '{{ tools // 0 }}',
      '{{ tools % 0 }}',
      '{{ tools / 0 }}',
    ])
      expect(() => render(source, 2n ** 70n), source).toThrow();
  });
});
