import { describe, expect, it } from 'vitest';
import { readPacked } from '../../../test/fixtures/read-packed.js';
import { strftime } from './strftime.js';

const fixture = readPacked('test/fixtures/text/chat-templates.json.gz') as {
  moment: [number, number, number, number, number, number];
  strftime: readonly { readonly format: string; readonly text: string }[];
};
const [year, month, day, hour, minute, second] = fixture.moment;

describe('strftime', () => {
  it.each(fixture.strftime)('writes $format as Python does', ({ format, text }) => {
    expect(strftime(new Date(year, month - 1, day, hour, minute, second), format)).toBe(text);
  });

  it('counts hours from 12 and days from 1, and leaves what it does not know', () => {
    expect(strftime(new Date(2024, 0, 1, 0), '%I %p %j')).toBe('12 AM 001');
    expect(strftime(new Date(2024, 11, 31, 12), '%I %p %j')).toBe('12 PM 366');
    expect(strftime(new Date(2024, 0, 1), '%Q 100%')).toBe('%Q 100%');
  });
});
