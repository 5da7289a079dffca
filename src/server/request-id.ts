/** What a request is called: in the header `x-request-id` of its answer, whatever that is, and in the log. */
import { randomUUID } from 'node:crypto';

export const REQUEST_ID = 'x-request-id';

/** Visible characters of ASCII, and not many: it goes into a header, and into the log of everybody on the way. */
const PLAIN = /^[\x21-\x7e]{1,128}$/;

export class RequestId {
  /** The client, or a proxy before the server, has named the request. */
  readonly given: boolean;
  #id: string;
  /** Of its answer, once that has one. */
  #answer: string | undefined;

  /** `header`: what the request calls itself. What is not plain is not repeated. */
  constructor(header?: string | null) {
    this.given = header != null && PLAIN.test(header);
    this.#id = this.given ? header! : `req-${randomUUID().replaceAll('-', '')}`;
  }

  /** The request has an answer, which names itself: so is the request named, unless it has a name of its own. */
  answeredAs(id: string): void {
    this.#answer = id;
    if (!this.given) this.#id = id;
  }

  toString(): string {
    return this.#id;
  }

  /** In a log line: `id` is that of the answer's body where there is one, and `requestId` what the client gave. */
  get fields(): { readonly id: string; readonly requestId?: string } {
    return { id: this.#answer ?? this.#id, ...(this.given ? { requestId: this.#id } : {}) };
  }
}
