import { describe, expect, it } from 'vitest';
import { CLI_LOG_LEVELS } from './flags.js';
import { type LoadLog, quietLog } from './log.js';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;

describe('quietLog', () => {
  it('writes what its level lets through, and makes a log for nothing else', () => {
    for (const level of CLI_LOG_LEVELS) {
      const written: unknown[] = [];
      let made = 0;
      const log = quietLog(level, (asked) => {
        expect(asked).toBe(level);
        made++;
        const write = (name: string) => (fields: object, message: string) =>
          written.push([name, fields, message]);
        return Object.fromEntries(LEVELS.map((name) => [name, write(name)])) as unknown as LoadLog;
      });
      const through = CLI_LOG_LEVELS.slice(1, CLI_LOG_LEVELS.indexOf(level) + 1);
      for (const name of LEVELS) {
        log[name]({ a: 1 }, name);
        expect(log.isLevelEnabled(name)).toBe(through.includes(name));
      }
      expect(written).toEqual(LEVELS.filter((n) => through.includes(n)).map((n) => [n, { a: 1 }, n]));
      expect(made).toBe(through.length > 0 ? 1 : 0);
    }
  });
});
