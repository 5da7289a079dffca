/** Clients that need not behave as HTTP wants them. */
import { connect, type Socket } from 'node:net';

/** A socket that one may write anything on. It stays open for reading when the server closes its half. */
export function rawClient(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
  socket.on('error', () => {});
  return socket;
}

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Sends a text, and gives all that comes back until the server closes. `half`: closes the client's half behind it. */
export async function exchange(url: string, text: string, half = false): Promise<string> {
  const socket = rawClient(url);
  if (half) socket.end(text);
  else socket.write(text);
  return untilClosed(socket);
}

/** All that the server says until it closes its half, or the connection. */
export function untilClosed(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let heard = '';
    socket.setEncoding('utf8').on('data', (part: string) => {
      heard += part;
    });
    const done = (): void => {
      socket.destroy();
      resolve(heard);
    };
    socket.on('end', done).on('close', done);
  });
}

/** The responses in what was heard, of which none is chunked. */
export function answersIn(heard: string): RawAnswer[] {
  const answers: RawAnswer[] = [];
  let rest = Buffer.from(heard);
  while (rest.length > 0) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) throw new Error(`no response: ${rest.toString().slice(0, 200)}`);
    const [first = '', ...lines] = rest.subarray(0, end).toString().split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(first)?.[1]);
    if (Number.isNaN(status)) throw new Error(`no status: ${first.slice(0, 200)}`);
    const headers = Object.fromEntries(
      lines.map((line) => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    );
    const length = Number(headers['content-length'] ?? 0);
    answers.push({ status, headers, body: rest.subarray(end + 4, end + 4 + length).toString() });
    rest = rest.subarray(end + 4 + length);
  }
  return answers;
}

/** The one response to a text after which the server closes. */
export async function answerTo(url: string, text: string, half = false): Promise<RawAnswer> {
  const answers = answersIn(await exchange(url, text, half));
  if (answers.length !== 1) throw new Error(`${answers.length} responses`);
  return answers[0]!;
}

export const post = (body: string, more = ''): string =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n${more}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
