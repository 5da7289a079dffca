/** kvant in what bundlers make of an application: outside of the bundle it answers, inside it says what to do. */
import { cpSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { docExamples } from '../package/doc-examples.js';
import { Workplace } from './workplace.js';

const TOKYO = { text: 'The capital of Japan is Tokyo.' };
const QUESTION = encodeURIComponent('What is the capital of Japan?');
const REFUSED = { known: true, code: 'bundled', fix: expect.stringContaining('Mark kvant as external') };

const place = new Workplace();
beforeAll(() => place.install());
afterAll(() => place.remove());

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

describe.each(['esm', 'cjs'])('esbuild, %s', (format) => {
  const bundle = async (name: string, ...more: string[]): Promise<string> => {
    const file = `out/esbuild-${format}-${name}/app.${format === 'esm' ? 'mjs' : 'cjs'}`;
    const flags = ['--bundle', '--platform=node', `--format=${format}`, `--outfile=${file}`];
    const said = await place.tool('esbuild', ['main.mjs', ...flags, ...more]);
    expect(said).not.toContain('[ERROR]');
    return file;
  };

  it('kvant outside of the bundle', async () => {
    expect(await place.run(await bundle('external', '--external:kvant'))).toEqual(TOKYO);
  });

  it('kvant in the bundle', async () => {
    const file = await bundle('inside');
    expect(await place.run(file)).toEqual(REFUSED);
    // The application has a worker of its own where kvant's would lie.
    await writeFile(join(place.app, file, '../worker.js'), 'setInterval(() => {}, 1000);\n');
    expect(await place.run(file)).toEqual(REFUSED);
  });
});

describe('Vite SSR', () => {
  const build = async (noExternal: boolean): Promise<string> => {
    const outDir = `out/vite-${noExternal}`;
    const config = `export default { ssr: { noExternal: ${noExternal} || undefined }, build: { ssr: 'main.mjs', outDir: '${outDir}' } };\n`;
    await writeFile(join(place.app, 'vite.config.mjs'), config);
    await place.tool('vite', ['build']);
    return join(outDir, 'main.js');
  };

  it('kvant outside of the bundle, as is the default', async () => {
    expect(await place.run(await build(false))).toEqual(TOKYO);
  });

  it('kvant in the bundle', async () => {
    expect(await place.run(await build(true))).toEqual(REFUSED);
  });
});

describe('Rollup', () => {
  const build = async (external: string[]): Promise<string> => {
    const dir = `out/rollup-${external.length}`;
    const config = `
      import commonjs from '@rollup/plugin-commonjs';
      import json from '@rollup/plugin-json';
      import resolve from '@rollup/plugin-node-resolve';
      export default {
        input: 'main.mjs',
        external: ${JSON.stringify(external)},
        output: { dir: '${dir}', format: 'es' },
        plugins: [resolve({ preferBuiltins: true }), commonjs(), json()],
      };`;
    await writeFile(join(place.app, 'rollup.config.mjs'), config);
    await place.tool('rollup', ['-c', '--silent']);
    return join(dir, 'main.js');
  };

  it('kvant outside of the bundle', async () => {
    expect(await place.run(await build(['kvant']))).toEqual(TOKYO);
  });

  it('kvant in the bundle', async () => {
    expect(await place.run(await build([]))).toEqual(REFUSED);
  });
});

describe('webpack', () => {
  const build = async (externals: object): Promise<string> => {
    const name = `webpack-${Object.keys(externals).length}`;
    const program = `
      import webpack from 'webpack';
      const config = {
        mode: 'production',
        target: 'node20',
        entry: './main.mjs',
        externals: ${JSON.stringify(externals)},
        output: { path: process.cwd() + '/out/${name}', filename: 'app.mjs', module: true, chunkFormat: 'module' },
        experiments: { outputModule: true },
      };
      webpack(config, (error, stats) => {
        const { errors, warnings } = error ? { errors: [error], warnings: [] } : stats.toJson({ all: false, errors: true, warnings: true });
        console.log(JSON.stringify({ text: JSON.stringify([...errors, ...warnings].map(({ message }) => message)) }));
      });`;
    await writeFile(join(place.app, 'webpack.mjs'), program);
    expect(await place.run('webpack.mjs')).toEqual({ text: '[]' });
    return `out/${name}/app.mjs`;
  };

  it('kvant outside of the bundle', async () => {
    expect(await place.run(await build({ kvant: 'module kvant' }))).toEqual(TOKYO);
  });

  it('kvant in the bundle: it is found where it was built, and missed elsewhere', async () => {
    const file = await build({});
    expect(await place.run(file)).toEqual(TOKYO);
    expect(await place.elsewhere(() => place.run(file))).toEqual(REFUSED);
  });
});

describe.each(['express', 'fastify'])('%s', (name) => {
  it('the example of the page answers', async () => {
    for (const file of ['engine.mjs', `${name}.mjs`])
      await writeFile(join(place.app, file), docExamples().get(file)!);
    const said = await place.ask(join(place.app, `${name}.mjs`), await freePort(), `/ask?q=${QUESTION}`);
    expect(said).toBe(TOKYO.text);
  });
});

describe('Next 16', () => {
  /** Builds the application and asks it in another folder, where nothing else is installed. */
  const answer = async (env: Record<string, '1'>, ...flags: string[]): Promise<unknown> => {
    const route = join(place.app, 'next/app/api/doc');
    await mkdir(route, { recursive: true });
    await writeFile(join(route, 'route.js'), docExamples().get('app/api/ask/route.js')!);
    await place.tool('next', ['build', ...flags], 'next', env);
    const copy = join(place.folder, `standalone-${Object.keys(env).join('-')}${flags.join('')}`);
    cpSync(join(place.app, 'next/.next/standalone'), copy, { recursive: true, verbatimSymlinks: true });
    const port = await freePort();
    const server = join(copy, 'app/next/server.js');
    return place.elsewhere(async () => {
      const said = JSON.parse(await place.ask(server, port)) as unknown;
      // The page's own example answers the same.
      if (env.EXTERNAL === '1' && (flags.length === 0 || env.WHOLE === '1'))
        expect(await place.ask(server, port, `/api/doc?q=${QUESTION}`)).toBe(TOKYO.text);
      return said;
    });
  };

  it('kvant outside of the bundle, in an image of its own', async () => {
    expect(await answer({ EXTERNAL: '1' })).toEqual(TOKYO);
  });

  it('kvant in the bundle: it builds, and says what to do', async () => {
    expect(await answer({})).toEqual({
      known: true,
      code: expect.stringMatching(/^(bundled|package-incomplete)$/),
      fix: expect.stringMatching(/mark kvant as external/i),
    });
  });

  it('with webpack, which copies only what it sees: it says so, and answers when told to copy the whole', async () => {
    expect(await answer({ EXTERNAL: '1' }, '--webpack')).toEqual({
      known: true,
      code: 'package-incomplete',
      fix: expect.stringContaining('outputFileTracingIncludes'),
    });
    expect(await answer({ EXTERNAL: '1', WHOLE: '1' }, '--webpack')).toEqual(TOKYO);
  });
});
