import { Engine, KvantError } from 'kvant';

export const dynamic = 'force-dynamic';

/** One engine for the process, also when a module is loaded again in development. */
function engine() {
  globalThis.kvantEngine ??= Engine.load(process.env.MODEL, { device: 'cpu', threads: 2, maxContext: 256 });
  return globalThis.kvantEngine;
}

export async function GET() {
  try {
    const messages = [{ role: 'user', content: 'What is the capital of Japan?' }];
    const { text } = await (await engine()).chat({ messages, temperature: 0 }).result;
    return Response.json({ text });
  } catch (error) {
    return Response.json({ known: error instanceof KvantError, code: error.code, fix: error.fix });
  }
}
