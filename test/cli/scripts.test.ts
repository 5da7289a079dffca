/** What the scripts of the repository say and return where something is missing or fails. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-scripts-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const lastLine = (text: string) => text.trimEnd().split('\n').at(-1);

/** Runs `.ci/run` with an npm that answers by `answers`, the lines of a shell `case` on its arguments. */
function ci(answers: string) {
  mkdirSync(join(folder, '.ci'));
  copyFileSync('.ci/run', join(folder, '.ci/run'));
  mkdirSync(join(folder, 'bin'));
  writeFileSync(
    join(folder, 'bin/npm'),
    `#!/bin/sh\necho "npm $*" >> calls\ncase "$*" in\n${answers}\nesac\n`,
    { mode: 0o755 },
  );
  const { status, stdout } = spawnSync('bash', [join(folder, '.ci/run')], {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${join(folder, 'bin')}${delimiter}${process.env.PATH}` },
  });
  return { status, stdout, last: lastLine(stdout) };
}

it.each<[string, string, number, string]>([
  ['everything passes', 'test) echo "7 passed, 0 failed";;', 0, '12 passed, 0 failed'],
  ['a test fails', 'test) echo "6 passed, 1 failed"; exit 1;;', 1, '11 passed, 1 failed'],
  ['lint fails', '"run -s lint") exit 1;;\ntest) echo "7 passed, 0 failed";;', 1, '11 passed, 1 failed'],
  ['the tests die without a word', 'test) exit 137;;', 1, '5 passed, 1 failed'],
  [
    'the tests say all is well and fail',
    'test) echo "7 passed, 0 failed"; exit 1;;',
    1,
    '12 passed, 1 failed',
  ],
])('.ci/run when %s', (_, answers, status, last) => {
  expect(ci(answers)).toMatchObject({ status, last });
});

it('.ci/run ends where nothing could be installed', () => {
  const { status, last, stdout } = ci('ci*) exit 1;;\ntest) echo "7 passed, 0 failed";;');
  expect({ status, last }).toEqual({ status: 1, last: '0 passed, 1 failed' });
  expect(stdout).not.toContain('== lint');
});

it('the test command refuses a suite that does not exist, and counts that as a failure', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/test.mjs', 'nope'], {
    encoding: 'utf8',
  });
  expect({ status, last: lastLine(stdout) }).toEqual({ status: 2, last: '0 passed, 1 failed' });
  expect(stderr).toContain('unit, devices-cpu');
});
