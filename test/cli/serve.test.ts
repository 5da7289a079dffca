/** `kvant serve` as a process: how it ends, and what it prints. */
import { describe, expect, it } from 'vitest';
import { kvantServe } from './kvant.js';

const demo = 'models/demo-text';
const cpu = ['--device', 'cpu', '--max-context', '1024'];

describe('kvant serve', () => {
  it('serves until told to stop, and lets the last answer finish', async () => {
    const serving = await kvantServe([demo, ...cpu, '--log-level', 'debug']);
    const ask = (body: object): Promise<Response> =>
      fetch(`${serving.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          messages: [{ role: 'user', content: 'Count from 1 to 20.' }],
          temperature: 0,
          ...body,
        }),
      });
    const answer = await (await ask({})).json();
    expect(JSON.stringify(answer)).toContain('20');
    const streaming = (await ask({ stream: true, max_tokens: 300, ignore_eos: true })).text();
    await new Promise((resolve) => setTimeout(resolve, 100));
    const ran = await serving.stop('SIGTERM');
    expect(await streaming).toContain('data: [DONE]');
    expect(ran.code).toBe(0);
    const lines = ran.stderr
      .trim()
      .split('\n')
      .map((l) => JSON.parse(l) as { msg: string; level: number; parameters?: object; kv?: string[] });
    const messages = lines.map((l) => l.msg);
    expect(messages[0]).toBe('loading model');
    expect(lines.find((l) => l.msg === 'model loaded')?.kv).toHaveLength(8);
    expect(messages).toContain('listening');
    expect(messages.filter((m) => m === 'completed')).toHaveLength(2);
    expect(lines.find((l) => l.msg === 'request')?.parameters).toMatchObject({ temperature: 0 });
    expect(ran.stderr).toMatch(/f16|f32/);
  });

  it('ends at once when told twice', async () => {
    const serving = await kvantServe([demo, ...cpu]);
    const body = { prompt: 'Once', max_tokens: 900, ignore_eos: true, stream: true };
    const response = await fetch(`${serving.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    const rest = response.text().catch(() => 'cut');
    const ran = serving.stop('SIGINT');
    await new Promise<void>((resolve) => {
      serving.child.stderr.on('data', (data) => String(data).includes('shutting down') && resolve());
    });
    serving.child.kill('SIGINT');
    expect((await ran).code).toBe(130);
    expect(await rest).not.toContain('"finish_reason":"length"');
  });

  it('serves on, whoever reads what it prints', async () => {
    const serving = await kvantServe([demo, ...cpu, '--host', '::1']);
    expect(serving.url).toMatch(/^http:\/\/\[::1\]:\d+$/);
    serving.child.stdout.destroy();
    serving.child.stderr.destroy();
    for (let i = 0; i < 3; i++) expect((await fetch(`${serving.url}/nowhere`)).status).toBe(404);
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
    expect((await serving.stop('SIGINT')).code).toBe(0);
  });

  it('warns when anybody may use it', async () => {
    const open = await kvantServe([demo, ...cpu, '--host', '0.0.0.0']);
    expect((await open.stop('SIGINT')).stderr).toContain('--api-key');
    const closed = await kvantServe([demo, ...cpu, '--host', '0.0.0.0', '--api-key', 'k']);
    expect((await closed.stop('SIGINT')).stderr).not.toContain('--api-key');
  });
});
