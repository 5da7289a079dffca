import { describe, expect, it } from 'vitest';
import { KvantError } from '../../errors.js';
import { Settings } from './settings.js';

function refusal(settings: Settings, name: string, text: string): KvantError {
  try {
    settings.set(name, text);
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error(`${name} ${text} was taken`);
}

describe('/set', () => {
  it.each([
    ['temperature', '0.7', { temperature: 0.7 }],
    ['TEMPERATURE', '0', { temperature: 0 }],
    ['top-k', '40', { topK: 40 }],
    ['top_p', '0.9', { topP: 0.9 }],
    ['minP', '0.1', { minP: 0.1 }],
    ['max-tokens', '100', { maxTokens: 100 }],
    ['seed', '-3', { seed: -3 }],
    ['mirostat', '2', { mirostat: 2 }],
    ['stop', 'END', { stop: ['END'] }],
    ['stop', '"the end" "\\n\\n" x', { stop: ['the end', '\n\n', 'x'] }],
    ['stop-token-ids', '2,7', { stopTokenIds: [2, 7] }],
    ['logit-bias', '42=-100 7=1.5', { logitBias: { 42: -100, 7: 1.5 } }],
    ['dry-sequence-breaker', '"\\n" :', { drySequenceBreakers: ['\n', ':'] }],
  ])('%s %s', (name, text, sampling) => {
    const settings = new Settings({});
    settings.set(name, text);
    expect(settings.sampling).toEqual(sampling);
    settings.set(name, 'default');
    expect(settings.sampling).toEqual({});
  });

  it('says what holds now, and all of it', () => {
    const settings = new Settings({ topK: 20 });
    expect(settings.set('temperature', '0.5')).toBe('temperature 0.5');
    expect(settings.set('thinking', 'off')).toBe('thinking off');
    expect(settings.templateOptions).toEqual({ enable_thinking: false });
    const all = settings.describe({ temperature: 0.7, topP: 0.8 });
    expect(all).toContain('temperature 0.5\n');
    expect(all).toContain('top-p 0.8 (default)\n');
    expect(all).toContain('top-k 20\n');
    expect(all).toContain('thinking off\n');
    expect(all).toMatch(/Names: thinking, max-tokens, temperature, /);
    expect(settings.set('thinking', 'default')).toBe('thinking is the default again');
    expect(settings.templateOptions).toEqual({});
  });

  it.each([
    ['temprature', '1', 'unknown-parameter', 'Did you mean `temperature`?'],
    ['colour', 'red', 'unknown-parameter', 'See /set for their names.'],
    ['temperature', 'hot', 'invalid-parameter', 'Write /set temperature t, or /set temperature default.'],
    ['temperature', '-1', 'invalid-parameter', 'Write /set temperature t, or /set temperature default.'],
    ['temperature', '', 'invalid-parameter', 'Write /set temperature t, or /set temperature default.'],
    ['top-k', '1.5', 'invalid-parameter', 'Write /set top-k k, or /set top-k default.'],
    ['mirostat', '1', 'invalid-parameter', 'Write /set mirostat n, or /set mirostat default.'],
    ['thinking', 'maybe', 'invalid-parameter', 'Write /set thinking on, off, or /set thinking default.'],
    ['logit-bias', 'x', 'invalid-parameter', 'Write /set logit-bias id=bias..., or /set logit-bias default.'],
  ])('%s %s is refused and changes nothing', (name, text, code, fix) => {
    const settings = new Settings({ temperature: 0.3 });
    expect(refusal(settings, name, text)).toMatchObject({ code, fix });
    expect(settings.sampling).toEqual({ temperature: 0.3 });
  });
});
