// Runs the built command for one list of arguments after another, as it would run in processes of their own, and writes what each ended with.
// Given: the lists as JSON on stdin.
import { text } from 'node:stream/consumers';

const program = new URL('../../dist/cli/program.js', import.meta.url);
const lists = JSON.parse(await text(process.stdin));
const { stdout, stderr } = process;
const print = stdout.write.bind(stdout);
const ran = [];
// Each run of the program listens to both for its life.
for (const stream of [stdout, stderr]) stream.setMaxListeners(0);
for (const [at, args] of lists.entries()) {
  const end = { code: 0, stdout: '', stderr: '' };
  for (const [name, stream] of Object.entries({ stdout, stderr })) {
    stream.write = (chunk) => {
      end[name] += chunk;
      return true;
    };
  }
  process.argv = [...process.argv.slice(0, 2), ...args];
  process.exitCode = undefined;
  // Once more for each: what it imports is loaded once.
  await import(`${program.href}?${at}`);
  end.code = process.exitCode ?? 0;
  ran.push(end);
}
print(JSON.stringify(ran), () => process.exit(0));
