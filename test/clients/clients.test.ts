/**
 * Clients that nobody here wrote, of pinned versions, against a running server: each program in `programs` prints what it got. Those
 * of Python run where KVANT_CLIENTS_PYTHON names an interpreter.
 */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Serving, serveDemo } from '../server/serving.js';

const execute = promisify(execFile);
const here = fileURLToPath(new URL('.', import.meta.url));
const python = process.env.KVANT_CLIENTS_PYTHON;

const CITY = { city: 'Rome', size: expect.stringMatching(/^(small|large)$/) };
const CALL = { city: 'Rome' };

describe('clients', () => {
  let folder: string;
  let serving: Serving;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-clients-'));
    await cp(join(here, 'tools'), folder, { recursive: true });
    await cp(join(here, 'programs'), folder, { recursive: true });
    await execute('npm', ['install', '--no-audit', '--no-fund'], { cwd: folder, maxBuffer: 2 ** 26 });
    if (python !== undefined) {
      await execute(python, ['-m', 'venv', 'python'], { cwd: folder });
      await execute('python/bin/pip', ['install', '-q', '-r', 'requirements.txt'], { cwd: folder });
    }
    serving = await serveDemo({ maxRows: 8, worker: false });
  });
  afterAll(async () => {
    await serving?.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** What a program prints. */
  async function run(program: string, file: string): Promise<unknown> {
    const env = { ...process.env, BASE_URL: `${serving.url}/v1` };
    const { stdout } = await execute(program, [file], { cwd: folder, env, maxBuffer: 2 ** 26 }).catch(
      (error: Error & { stdout?: string; stderr?: string }) => {
        throw new Error(`${file} failed:\n${error.stdout}\n${error.stderr}`);
      },
    );
    return JSON.parse(stdout);
  }

  it('openai: parse, stream, runTools', async () => {
    const city = { city: 'Rome', people: expect.any(Number) };
    const found = (await run(process.execPath, 'openai.mjs')) as Record<string, unknown>;
    expect(found).toEqual({
      parsed: city,
      streamed: found.parsed,
      deltas: found.parsed,
      asked: ['Rome'],
      said: expect.stringContaining('sunny'),
      call: CALL,
    });
  });

  it('instructor: by a forced tool, and by a schema', async () => {
    expect(await run(process.execPath, 'instructor.mjs')).toEqual({ TOOLS: CITY, JSON_SCHEMA: CITY });
  });

  it('ai: objects, whole and streamed, and tools', async () => {
    const found = (await run(process.execPath, 'ai-sdk.mjs')) as { parts: number; asked: string[] };
    expect(found).toEqual({
      object: CITY,
      streamed: CITY,
      parts: expect.any(Number),
      counted: true,
      text: expect.stringContaining('sunny'),
      steps: 2,
      // The second is that of a stream which has to call.
      asked: ['Rome', 'Rome'],
      calls: [{ toolName: 'get_weather', input: CALL }],
    });
    expect(found.parts).toBeGreaterThan(3);
  });

  it('LangChain: structured output by its methods, and tools', async () => {
    const found = (await run(process.execPath, 'langchain.mjs')) as { chunks: number };
    expect(found).toEqual({
      jsonSchema: CITY,
      functionCalling: CITY,
      asked: ['Rome'],
      text: expect.stringContaining('sunny'),
      chunks: expect.any(Number),
      calls: [{ name: 'get_weather', args: CALL }],
    });
    expect(found.chunks).toBeGreaterThan(3);
  });

  if (python !== undefined)
    it('pydantic-ai: typed answers and tools', async () => {
      expect(await run('python/bin/python', 'pydantic-ai.py')).toEqual({
        tool: CITY,
        native: CITY,
        asked: ['Rome'],
        said: expect.stringContaining('sunny'),
      });
    });
});
