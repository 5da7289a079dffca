/** Where no prefixes are cached there is no work and no memory for it: not one of its parts is made. */
import { expect, it, vi } from 'vitest';
import { loadOracle } from './engine-harness.js';

const made: string[] = [];

vi.mock(import('../../src/kv/prefix/prefix-index.js'), async (original) => {
  const module = await original();
  class PrefixIndex extends module.PrefixIndex {
    constructor(...args: ConstructorParameters<typeof module.PrefixIndex>) {
      super(...args);
      made.push('index');
    }
  }
  return { ...module, PrefixIndex };
});

vi.mock(import('../../src/kv/prefix/cold-list.js'), async (original) => {
  const module = await original();
  class ColdList extends module.ColdList {
    constructor(blocks: number) {
      super(blocks);
      made.push('cold list');
    }
  }
  return { ...module, ColdList };
});

vi.mock(import('../../src/kv/prefix/sha256.js'), async (original) => {
  const module = await original();
  const sha256Compress: typeof module.sha256Compress = (...args) => {
    made.push('key');
    module.sha256Compress(...args);
  };
  return { ...module, sha256Compress };
});

it('off: nothing is made', async () => {
  const prompt = Array.from({ length: 100 }, (_, i) => i);
  for (const prefixCache of [false, true]) {
    made.length = 0;
    const { engine } = await loadOracle({ prefixCache, kvBits: 8, quantizedKvStart: 20 });
    for (let i = 0; i < 3; i++) await engine.generate({ prompt, maxTokens: 4 }).result;
    const stats = await engine.stats();
    if (prefixCache) {
      // One for each pool.
      expect(made.filter((what) => what === 'index')).toHaveLength(2);
      expect(made.filter((what) => what === 'cold list')).toHaveLength(2);
      expect(made.filter((what) => what === 'key').length).toBeGreaterThan(18);
      expect(stats.prefixCache?.hits).toBe(2);
    } else {
      expect(made).toEqual([]);
      expect(stats.prefixCache).toBeUndefined();
    }
    await engine.close();
  }
});
