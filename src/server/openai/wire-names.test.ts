import { describe, expect, it } from 'vitest';
import { KvantError } from '../../errors.js';
import { wireError } from './wire-names.js';

describe('names of fields in errors', () => {
  it('are those of the body', () => {
    const error = new KvantError('queue-timeout', 'Over: `queueTimeoutMs`.', {
      kind: 'overloaded',
      where: 'queueTimeoutMs',
      fix: 'Allow more.',
      retryAfter: 3,
    });
    expect(wireError(error)).toMatchObject({
      code: 'queue-timeout',
      message: 'Over: `queue_timeout`.',
      where: 'queue_timeout',
      fix: 'Allow more.',
      retryAfter: 3,
      status: 429,
      cause: error,
    });
    const sampling = new KvantError('invalid-parameter', '`topK` no.', { where: 'topK' });
    expect(wireError(sampling)).toMatchObject({ where: 'top_k', message: '`top_k` no.' });
  });

  it('of a form are of the field that asked for it', () => {
    const error = new KvantError('unsupported-schema', 'No: `schema`.', { where: 'schema' });
    expect(wireError(error, { formField: 'json_schema' })).toMatchObject({
      where: 'json_schema',
      message: 'No: `json_schema`.',
    });
    expect(wireError(error, { formField: 'structured_outputs' })).toMatchObject({
      where: 'structured_outputs',
    });
    expect(wireError(error, null)).toMatchObject({ where: 'response_format' });
    const other = new KvantError('invalid-parameter', '`topK` no.', { where: 'topK' });
    expect(wireError(other, { formField: 'json_schema' })).toMatchObject({ where: 'top_k' });
  });

  it('are each said where two do not go together', () => {
    const error = new KvantError('conflicting-parameters', '`schema` and `minTokens`.', {
      where: 'minTokens',
      fix: 'Leave `minTokens` out.',
    });
    expect(wireError(error, { formField: 'json_schema' })).toMatchObject({
      where: 'min_tokens',
      message: '`json_schema` and `min_tokens`.',
      fix: 'Leave `min_tokens` out.',
    });
  });

  it('of another server stay, also where the library has them', () => {
    const error = new KvantError('unsupported-parameter', '`regex` is not supported.', { where: 'regex' });
    expect(wireError(error, null)).toBe(error);
  });

  it('stay what the client wrote where that is what is wrong', () => {
    const error = new KvantError('unknown-parameter', '`maxTokens` is none.', { where: 'maxTokens' });
    expect(wireError(error)).toBe(error);
  });

  it('stay where they are the same, or there is none', () => {
    for (const where of ['messages[0].content', 'constructor', undefined]) {
      const error = new KvantError('x', 'y', where === undefined ? {} : { where });
      expect(wireError(error)).toBe(error);
    }
  });
});
