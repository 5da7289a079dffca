// Tasks for the tests of the threads that work on texts.

/** Says it back, with the first token of the model, and the number of its thread. */
export const echo = (text, argument) => ({
  value: { argument, ids: [...text.encode('Hi', false)] },
});

/** Hands a buffer over. */
export const buffer = (_, size) => {
  const value = new Uint8Array(size).fill(7);
  return { value, transfer: [value.buffer] };
};

/** Goes on for ever, and asks whether it should. */
export const patient = (_, __, watch) => {
  for (;;) watch.check();
};

/** Goes on for ever and never asks. */
export const deaf = () => {
  for (;;);
};

/** Takes so many milliseconds, as long as it is wanted. */
export const busy = (_, ms, watch) => {
  const end = performance.now() + ms;
  while (performance.now() < end) watch.check();
  return { value: ms };
};

/** Takes memory without end. */
export const greedy = () => {
  const held = [];
  for (;;) held.push(new Array(100_000).fill(held.length));
};

export const fail = () => {
  throw new TypeError('it is a bug');
};

/** Says back lists within lists, so many deep. */
export const deep = (_, levels) => ({
  value: Array.from({ length: levels }).reduce((inner) => [inner], null),
});

export const exit = () => process.exit(3);
