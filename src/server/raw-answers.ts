/** Answers to what is no request, or not one for the application: JSON errors too, written without it. */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { readAuthority } from './authority.js';
import { errorAnswer } from './error-answers.js';
import { REQUEST_ID, type RequestId } from './request-id.js';

/** A whole response, after which the connection is to be closed. */
export function rawAnswer(error: KvantError, id: RequestId): string {
  const { status, body, ...answer } = errorAnswer(error, '');
  const headers = {
    ...answer.headers,
    [REQUEST_ID]: `${id}`,
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`;
}

/** The same as the response to a request; its connection is closed, for nobody has read the body. */
export function answerError(outgoing: ServerResponse, error: KvantError, id: RequestId): void {
  const { status, headers, body } = errorAnswer(error, outgoing.req.url ?? '');
  outgoing.writeHead(status, {
    ...headers,
    [REQUEST_ID]: `${id}`,
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  });
  outgoing.end(body);
}

/** As Node tells of it. */
interface ParserError extends NodeJS.ErrnoException {
  readonly reason?: string;
  readonly rawPacket?: Buffer;
}

/** What the parser of HTTP, or its clock, found wrong. */
export function parserError(error: ParserError): KvantError {
  const invalid = (code: string, message: string, fix: string): KvantError =>
    new KvantError(code, message, { kind: 'invalid-request', fix });
  switch (error.code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return requestTimeout();
    case 'HPE_HEADER_OVERFLOW':
      return invalid(
        'headers-too-large',
        'The address and the headers of the request are larger than 16 KiB.',
        'Send less of them; what a model is to read belongs into the body.',
      );
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return invalid('body-too-large', 'The chunk extensions of the body are too large.', 'Leave them out.');
    case 'HPE_INVALID_EOF_STATE':
      return invalid('body-incomplete', 'The request broke off.', 'Send all of it.');
  }
  // The first bytes of a TLS handshake.
  if (error.rawPacket?.[0] === 0x16 && error.rawPacket[1] === 3)
    return invalid('invalid-http', 'This port speaks HTTP, not HTTPS.', 'Use http:// in the address.');
  const reason = error.reason === undefined ? '' : `: ${error.reason}`;
  return invalid('invalid-http', `The request is not valid HTTP${reason}.`, 'Send HTTP/1.1.');
}

export function requestTimeout(): KvantError {
  return new KvantError('request-timeout', 'The request did not arrive in time.', {
    kind: 'invalid-request',
    fix: 'Send it faster, or start the server with longer --header-timeout, --body-timeout or --request-timeout.',
  });
}

/**
 * Reads the one `Host` of a request, and writes it back as URLs write it. HTTP/1.0 knew none.
 * Errors: `invalid-host`.
 */
export function settleHost(incoming: IncomingMessage): void {
  const { rawHeaders, headers, httpVersionMajor, httpVersionMinor } = incoming;
  const hosts = rawHeaders.filter((_, i) => i % 2 === 1 && rawHeaders[i - 1]!.toLowerCase() === 'host');
  if (hosts.length > 1) throw invalidHost('The request has several Host headers.');
  const host = headers.host ?? '';
  if (host === '') {
    if (httpVersionMajor === 1 && httpVersionMinor === 0) return;
    throw invalidHost('The request has no Host header.');
  }
  const authority = readAuthority(host);
  if (authority === null) throw invalidHost(`The Host header "${shown(host)}" is no name and port.`);
  headers.host = authority.port === '' ? authority.name : `${authority.name}:${authority.port}`;
}

function invalidHost(message: string): KvantError {
  return new KvantError('invalid-host', message, {
    kind: 'invalid-request',
    where: 'Host',
    fix: 'Send one, such as "Host: localhost:8080".',
  });
}
