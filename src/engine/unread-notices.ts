/** What a chat template makes nothing of is told once: whoever runs the engine learns why a field has no effect. */
import { shown } from '../printable.js';
import type { Unread } from '../text/chat-template.js';
import type { LogEntry } from './types.js';

/** Names are the clients': one who makes up new ones shall not fill the log. */
const MOST_TOLD = 64;

const MESSAGES: Readonly<Record<Unread['kind'], string>> = {
  field: 'the chat template reads nothing of a field of messages; it has no effect',
  format: 'a schema has a `format` that the standard does not know; it is an annotation and has no effect',
  variable: 'the chat template does not read a variable; it has no effect',
};

export class UnreadNotices {
  readonly #onLog: ((entry: LogEntry) => void) | undefined;
  readonly #notifier = new Set<string>();

  constructor(onLog: ((entry: LogEntry) => void) | undefined) {
    this.#onLog = onLog;
  }

  tell(unread: readonly Unread[]): void {
    for (const { kind, name, where } of unread) {
      const key = `${kind} ${name}`;
      if (this.#notifier.has(key) || this.#notifier.size >= MOST_TOLD) continue;
      this.#notifier.add(key);
      const fields = { name: shown(name), where: shown(where) };
      this.#onLog?.({ level: 'warn', message: MESSAGES[kind], fields });
    }
  }
}
