import { afterEach, describe, expect, it, vi } from 'vitest';
import { EventTurn, yieldToEvents } from './yield.js';

describe('yieldToEvents', () => {
  afterEach(() => vi.unstubAllGlobals());

  it('lets messages in, and makes no more than one channel where there is no setImmediate', async () => {
    const Channel = MessageChannel;
    const made: InstanceType<typeof Channel>[] = [];
    vi.stubGlobal('setImmediate', undefined);
    vi.stubGlobal(
      'MessageChannel',
      class extends Channel {
        constructor() {
          super();
          made.push(this);
        }
      },
    );
    let heard = 0;
    const other = new Channel();
    other.port1.addEventListener('message', () => heard++);
    other.port1.start();
    other.port2.postMessage(null);
    for (let step = 0; step < 100 || heard === 0; step++) {
      if (step > 10_000) throw new Error('the message never came in');
      await yieldToEvents();
    }
    await Promise.all([yieldToEvents(), yieldToEvents()]);
    const turn = new EventTurn();
    turn.begin();
    expect(turn.over).toBe(false);
    await turn.wait();
    expect(turn.over).toBe(true);
    expect(made).toHaveLength(1);
    made[0]!.port1.close();
    other.port1.close();
  });
});

describe('a turn of the event loop', () => {
  it('is not waited for where it has been, and is where it has not', async () => {
    const turn = new EventTurn();
    expect(turn.over).toBe(true);
    turn.begin();
    let turned = false;
    setImmediate(() => {
      turned = true;
    });
    // Promises alone let nothing in.
    await Promise.resolve();
    expect(turn.over).toBe(false);
    await turn.wait();
    expect(turned).toBe(true);
    expect(turn.over).toBe(true);
    turn.begin();
    turn.begin();
    // Whoever waited for something else saw the loop turn too.
    await new Promise((resolve) => setImmediate(resolve));
    expect(turn.over).toBe(true);
  });
});
