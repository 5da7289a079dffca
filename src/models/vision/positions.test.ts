import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readPacked } from '../../../test/fixtures/read-packed.js';
import { rotaryPlaces } from './positions.js';

describe('rotaryPlaces', () => {
  it('gives pictures a place of their own, and goes on behind their longer side', () => {
    // Two tokens, a picture of 2 × 3, one token, a picture of one token.
    const { positions, end, shift } = rotaryPlaces([
      { first: 2, rows: 2, cols: 3 },
      { first: 9, rows: 1, cols: 1 },
    ]);
    const rows = Array.from({ length: end }, (_, i) => [...positions.subarray(i * 3, i * 3 + 3)]);
    expect(rows).toEqual([
      [0, 0, 0],
      [1, 1, 1],
      [2, 2, 2],
      [2, 2, 3],
      [2, 2, 4],
      [2, 3, 2],
      [2, 3, 3],
      [2, 3, 4],
      [5, 5, 5],
      [6, 6, 6],
    ]);
    expect(end + shift).toBe(7);
  });

  it.each(['qwen2-vl', 'qwen2.5-vl'])('agrees with the reference, %s', (name) => {
    const file = new URL(`../../../test/fixtures/vision-families/${name}/expected.json.br`, import.meta.url);
    const config = new URL('config.json', file);
    const { vision_start_token_id: start } = JSON.parse(readFileSync(config, 'utf8')) as Record<
      string,
      number
    >;
    const { cases } = readPacked(file) as {
      cases: { ids: number[]; grids: [number, number][]; positions: number[][]; delta: number }[];
    };
    for (const { ids, grids, positions: want, delta } of cases) {
      const firsts = ids.flatMap((id, at) => (id === start ? [at + 1] : []));
      const pictures = grids.map(([rows, cols], i) => ({
        first: firsts[i]!,
        rows: rows / 2,
        cols: cols / 2,
      }));
      const { positions, end, shift } = rotaryPlaces(pictures);
      expect(shift).toBe(delta);
      ids.forEach((_, at) => {
        const got = [0, 1, 2].map((axis) => (at < end ? positions[at * 3 + axis] : at + shift));
        expect(got).toEqual(want.map((axis) => axis[at]));
      });
    }
  });

  it('leaves text where it is', () => {
    expect(rotaryPlaces([])).toEqual({ positions: new Uint32Array(), end: 0, shift: 0 });
  });
});
