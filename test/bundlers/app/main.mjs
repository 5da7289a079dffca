// A program that an application would bundle. Prints one line of JSON: its answer, or the error that it caught.
import { Engine, KvantError } from 'kvant';

async function main() {
  const engine = await Engine.load(process.env.MODEL, { device: 'cpu', threads: 2, maxContext: 256 });
  const messages = [{ role: 'user', content: 'What is the capital of Japan?' }];
  const { text } = await engine.chat({ messages, temperature: 0 }).result;
  await engine.close();
  return { text };
}

main()
  .catch((error) => ({ known: error instanceof KvantError, code: error.code, fix: error.fix }))
  .then((line) => console.log(JSON.stringify(line)));
