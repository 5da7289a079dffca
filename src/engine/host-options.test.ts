import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { checkOptions } from './host-options.js';
import { SHAPE_OPTIONS } from './option-lists.js';
import type { EngineOptions } from './types.js';

function refusal(options: unknown): KvantError {
  try {
    checkOptions(options as EngineOptions);
  } catch (error) {
    if (error instanceof KvantError) return error;
  }
  throw new Error(`not refused: ${JSON.stringify(options)}`);
}

describe('engine options', () => {
  it('takes all that there are', () => {
    const hub = { token: 't', cacheDir: '/c', endpoint: 'http://e', offline: true, revision: 'main' };
    checkOptions({
      device: 'cpu',
      deterministic: true,
      allowSoftwareGpu: false,
      worker: false,
      kvBits: 8,
      kvGroupSize: 32,
      kvSkipLayers: [],
      sampling: { temperature: 0 },
      name: 'served',
      allowMediaUrls: true,
      allowedMediaDomains: ['a.example', '*.b.example', 'localhost'],
      allowedLocalMediaPath: '/pictures',
      hub,
      onProgress: () => {},
      onLog: () => {},
      signal: new AbortController().signal,
    });
    checkOptions({ vocab: 5, standInText: true } as EngineOptions, SHAPE_OPTIONS, 'Engine.loadShape');
  });

  it('refuses what it does not know, and says what may have been meant', () => {
    for (const [options, where, meant] of [
      [{ maxRow: 4 }, 'maxRow', 'maxRows'],
      [{ max_rows: 4 }, 'max_rows', 'maxRows'],
      [{ kvbits: 4 }, 'kvbits', 'kvBits'],
      [{ prefixCacheByte: 4 }, 'prefixCacheByte', 'prefixCacheBytes'],
      [{ quantise: 4 }, 'quantise', 'quantize'],
      [{ hub: { cachedir: '/c' } }, 'cachedir', 'cacheDir'],
    ] as const)
      expect(refusal(options)).toMatchObject({
        code: 'unknown-option',
        status: 400,
        where,
        fix: `Did you mean \`${meant}\`?`,
      });
    // Another method's.
    expect(refusal({ vocab: 5 })).toMatchObject({ code: 'unknown-option', where: 'vocab' });
    expect(refusal(null).code).toBe('invalid-option');
  });

  it('refuses values of another kind, which might count as something else', () => {
    for (const [options, where] of [
      [{ deterministic: 'false' }, 'deterministic'],
      [{ allowSoftwareGpu: 1 }, 'allowSoftwareGpu'],
      [{ worker: 'false' }, 'worker'],
      [{ prefixCache: 0 }, 'prefixCache'],
      [{ name: '' }, 'name'],
      [{ name: 5 }, 'name'],
      [{ onLog: 'console' }, 'onLog'],
      [{ onProgress: {} }, 'onProgress'],
      [{ signal: {} }, 'signal'],
      [{ hub: 'http://hub' }, 'options'],
      [{ hub: { offline: '0' } }, 'hub.offline'],
      [{ hub: { token: 5 } }, 'hub.token'],
      [{ kvMemory: '8GiB' }, 'kvMemory'],
      [{ targetItlMs: '5' }, 'targetItlMs'],
      [{ allowMediaUrls: 'yes' }, 'allowMediaUrls'],
      [{ allowedMediaDomains: 'a.example' }, 'allowedMediaDomains'],
      [{ allowedMediaDomains: [] }, 'allowedMediaDomains'],
      [{ allowedMediaDomains: ['https://a.example'] }, 'allowedMediaDomains'],
      [{ allowedMediaDomains: ['a.example', '*'] }, 'allowedMediaDomains'],
      [{ allowedMediaDomains: ['*.*.example'] }, 'allowedMediaDomains'],
    ] as const)
      expect(refusal(options), where).toMatchObject({ code: 'invalid-option', status: 400, where });
    const { message } = refusal({ allowedMediaDomains: ['a.example', 'https://b.example'] }) as KvantError;
    expect(message).toContain('is ["a.example","https://b.example"]; it takes');
  });
});
