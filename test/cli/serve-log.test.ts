/** The log of a running server, whatever reads it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const demo = fileURLToPath(new URL('../../models/demo-text', import.meta.url));

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** So many requests that leave a line of some 400 characters each, over one connection. */
async function flood(port: number, requests: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  const one = `GET /${'x'.repeat(300)} HTTP/1.1\r\nhost: localhost\r\n\r\n`;
  socket.write(`${one.repeat(requests - 1)}${one.replace('host', 'connection: close\r\nhost')}`);
  socket.resume();
  await once(socket, 'close');
}

it('serves on when nobody reads its output, tells how many lines are missing, and ends', async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const args = ['serve', demo, '--device', 'cpu', '--threads', '1', '--port', String(port)];
  const child = spawn(process.execPath, [main, ...args]);
  const ended = once(child, 'exit');
  const healthy = (): Promise<boolean> =>
    fetch(`${url}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  await expect.poll(healthy, { timeout: 60_000 }).toBe(true);
  // Far more than a pipe and the bound hold together.
  await flood(port, 3500);
  expect(await healthy()).toBe(true);
  let text = '';
  const read = (part: string): void => {
    text += part;
  };
  child.stderr.setEncoding('utf8').on('data', read);
  await expect.poll(() => text, { timeout: 20_000 }).toContain('"dropped"');
  // Once it is read again, nothing is missing.
  expect((await fetch(`${url}/nowhere`)).status).toBe(404);
  await expect.poll(() => text, { timeout: 20_000 }).toContain('/nowhere');
  const lines = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { msg: string; dropped?: number });
  const told = lines.findIndex(({ dropped }) => dropped !== undefined);
  const refused = lines.slice(0, told).filter(({ msg }) => msg.startsWith('There is no GET /xxx'));
  expect(refused.length + lines[told]!.dropped!).toBe(3500);
  child.stderr.pause();
  await flood(port, 3500);
  child.kill('SIGTERM');
  expect(await ended).toEqual([0, null]);
  child.stderr.destroy();
  child.stdout.destroy();
});
