import { describe, expect, it } from 'vitest';
import type { LogEntry } from './types.js';
import { UnreadNotices } from './unread-notices.js';

describe('what has no effect', () => {
  it('is told once for each name, and not for ever', () => {
    const log: LogEntry[] = [];
    const notices = new UnreadNotices((entry) => log.push(entry));
    const refusal = { kind: 'field', name: 'refusal', where: 'messages[2].refusal' } as const;
    notices.tell([refusal]);
    notices.tell([refusal, { kind: 'variable', name: 'refusal', where: 'chat_template_kwargs.refusal' }]);
    expect(log.map(({ level, fields }) => [level, fields.where])).toEqual([
      ['warn', 'messages[2].refusal'],
      ['warn', 'chat_template_kwargs.refusal'],
    ]);
    for (let i = 0; i < 1000; i++)
      notices.tell([{ kind: 'field', name: `made-up-${i}`, where: 'messages[0]' }]);
    expect(log.length).toBe(64);
    new UnreadNotices(undefined).tell([refusal]);
  });

  it('is told in text fit for a terminal', () => {
    const log: LogEntry[] = [];
    const name = `\u001b[2J${'x'.repeat(1000)}`;
    new UnreadNotices((entry) => log.push(entry)).tell([
      { kind: 'field', name, where: `messages[0].${name}` },
    ]);
    expect(JSON.stringify(log).length).toBeLessThan(800);
    expect(log[0]!.fields.name).toMatch(/^\\u001b\[2Jxxx/);
  });
});
