import { describe, expect, it } from 'vitest';
import { closestName, didYouMean } from './did-you-mean.js';

const KNOWN = [
  'max_tokens',
  'max_completion_tokens',
  'top_p',
  'top_k',
  'n',
  'stop',
  'stop_token_ids',
  'seed',
];

describe('names that may have been meant', () => {
  it('finds the same name in another spelling', () => {
    for (const name of ['maxTokens', 'MaxTokens', 'max-tokens', 'MAX_TOKENS', 'maxtokens'])
      expect(closestName(name, KNOWN), name).toBe('max_tokens');
    expect(closestName('stopTokenIds', KNOWN)).toBe('stop_token_ids');
    expect(closestName('topP', KNOWN)).toBe('top_p');
  });

  it('finds what is a slip away, the closest first', () => {
    expect(closestName('max_token', KNOWN)).toBe('max_tokens');
    expect(closestName('max_tokesn', KNOWN)).toBe('max_tokens');
    expect(closestName('sotp', KNOWN)).toBe('stop');
    expect(closestName('seeds', KNOWN)).toBe('seed');
    expect(closestName('maxRow', ['maxRows', 'maxQueue'])).toBe('maxRows');
  });

  it('says nothing where none is close, or the name is no name', () => {
    for (const name of ['x', 'colour', 'best', '', 'm'.repeat(1_000_000)])
      expect(closestName(name, KNOWN)).toBeUndefined();
    expect(didYouMean('colour', KNOWN)).toBe('');
    expect(didYouMean('maxTokens', KNOWN)).toBe(' Did you mean `max_tokens`?');
  });
});
