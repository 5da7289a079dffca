import { describe, expect, it } from 'vitest';
import { ShareLedger } from './share-ledger.js';

describe('ShareLedger', () => {
  it('gives each share an index of its own, and the same one while it is known', () => {
    const ledger = new ShareLedger();
    const a = ledger.open('a', 1);
    const b = ledger.open('b', 2);
    expect(a).not.toBe(b);
    expect(ledger.open('a', 1)).toBe(a);
    expect(ledger.active).toBe(2);
    ledger.close('a');
    ledger.close('a');
    expect(ledger.active).toBe(1);
    expect(ledger.open('a', 1)).toBe(a);
  });

  it('a share that comes, or comes back, starts level with the least served that is there', () => {
    const ledger = new ShareLedger();
    const a = ledger.open('a', 1);
    ledger.charge(a, 1000);
    const b = ledger.open('b', 1);
    expect(ledger.served[b]).toBe(1000);
    ledger.charge(b, 50);
    ledger.close('b');
    ledger.charge(a, 500);
    expect(ledger.served[ledger.open('b', 1)]).toBe(1500);
    // Whoever has had more than the others does not lose that by going away for a moment.
    ledger.charge(b, 9000);
    ledger.close('b');
    expect(ledger.served[ledger.open('b', 1)]).toBe(10_500);
  });

  it('forgets the idle ones that were here longest ago, never one that is here', () => {
    const ledger = new ShareLedger();
    const stays = ledger.open('stays', 1);
    for (let i = 0; i < 5000; i++) {
      ledger.open(`key ${i}`, 1);
      ledger.close(`key ${i}`);
    }
    expect(ledger.served.length).toBeLessThanOrEqual(512);
    expect(ledger.open('stays', 1)).toBe(stays);
    expect(ledger.active).toBe(1);
  });
});
