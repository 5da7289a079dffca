/** A client of the server as applications are: keeps its connection, posts a conversation, reads the stream event by event. */
import { Agent, type IncomingMessage, request } from 'node:http';
import { StringDecoder } from 'node:string_decoder';
import type { LoadRequest } from './serve-load.js';

/** One answer as its reader saw it. Times are of `performance.now`. */
export interface StreamTimes {
  readonly sent: number;
  /** When each piece of text came. */
  readonly pieces: readonly number[];
  readonly ended: number;
  /** As the server counts them. */
  readonly tokens: number;
}

interface Chunk {
  readonly choices?: readonly { readonly delta?: { readonly content?: string } }[];
  readonly usage?: { readonly completion_tokens: number } | null;
  readonly error?: { readonly message: string };
}

export class BenchClient {
  readonly #url: URL;
  readonly #agent: Agent;

  /** `url`: of the server, without a path. */
  constructor(url: string, connections: number) {
    this.#url = new URL('/v1/chat/completions', url);
    this.#agent = new Agent({ keepAlive: true, maxSockets: connections });
  }

  /** Errors: what the server or the socket says; a stream that ends early. */
  async stream({ text, maxTokens }: LoadRequest): Promise<StreamTimes> {
    const body = JSON.stringify({
      messages: [{ role: 'user', content: text }],
      max_tokens: maxTokens,
      temperature: 0,
      ignore_eos: true,
      stream: true,
      stream_options: { include_usage: true },
    });
    const sent = performance.now();
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
      request(this.#url, { method: 'POST', agent: this.#agent, headers }, resolve)
        .once('error', reject)
        .end(body);
    });
    return read(response, sent);
  }

  close(): void {
    this.#agent.destroy();
  }
}

async function read(response: IncomingMessage, sent: number): Promise<StreamTimes> {
  const pieces: number[] = [];
  let tokens = -1;
  let done = false;
  let rest = '';
  let whole = '';
  const decoder = new StringDecoder('utf8');
  const take = (event: string): void => {
    if (!event.startsWith('data: ')) return;
    const data = event.slice('data: '.length);
    if (data === '[DONE]') {
      done = true;
      return;
    }
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error !== undefined) throw new Error(chunk.error.message);
    if (chunk.choices?.[0]?.delta?.content) pieces.push(performance.now());
    if (chunk.usage != null) tokens = chunk.usage.completion_tokens;
  };
  await new Promise<void>((resolve, reject) => {
    response.on('error', reject);
    response.on('end', resolve);
    response.on('data', (bytes: Buffer) => {
      if (response.statusCode !== 200) {
        whole += decoder.write(bytes);
        return;
      }
      rest += decoder.write(bytes);
      let from = 0;
      try {
        for (let at = rest.indexOf('\n\n'); at >= 0; at = rest.indexOf('\n\n', from)) {
          take(rest.slice(from, at));
          from = at + 2;
        }
      } catch (error) {
        response.destroy(error instanceof Error ? error : new Error(String(error)));
      }
      rest = rest.slice(from);
    });
  });
  if (response.statusCode !== 200) throw new Error(`the server answered ${response.statusCode}: ${whole}`);
  if (!done || tokens < 0) throw new Error('a stream ended before it was done');
  return { sent, pieces, ended: performance.now(), tokens };
}
