/** What a model is calibrated with unless it is given a text: prose, code, data, dialogue and other languages, written for this. */

export const CALIBRATION_TEXTS: readonly string[] = [
  `The harbour was quiet when the ferry came in. A few gulls stood on the sea wall, and a man in a yellow coat coiled a rope
with the patience of someone who had done it ten thousand times. Ines watched him from the upper deck. She had not been home for
six years, and the town had grown without asking her: a row of white flats where the cannery used to be, a new bridge, a clock
that showed the right time. Only the smell was the same, tar and salt and frying onions, and it struck her so hard that she
had to hold on to the rail. "First visit?" asked the woman beside her. "No," said Ines. "Not the first. I used to know every cat
on this street." The woman laughed. She had a basket with three loaves in it, and she tore the end off one and held it out.

Why does bread smell of anything at all? When dough is baked, sugars and amino acids in its crust react above about 140 °C and
form hundreds of small molecules that the air carries. The same reaction browns roasted coffee, seared meat and toasted nuts. A
chemist in Nancy, Louis-Camille Maillard, described it in 1912 while he was looking for something else: he wanted to know how
cells build proteins. His paper was hardly read for thirty years. During the war, army cooks complained that powdered eggs turned
brown and tasted stale, and the people who were asked to find out why came upon his name in an old volume.

Most rivers do not run straight. A small bend makes the water on its outer side run faster, so that it carries soil away there
and drops it further down on the inner side, and the bend grows. Over centuries a loop may come so near to itself that a flood
breaks through the neck. What is left behind is a lake in the shape of a horseshoe. You can see dozens of them from an
aeroplane over the Mississippi, the Amazon or the Ob, like the prints of an animal that went along beside the river.
`,
  `from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(order=True)
class Job:
    """A piece of work with a deadline; smaller priorities run first."""

    priority: int
    name: str = field(compare=False)
    cost: float = field(default=1.0, compare=False)


class Queue:
    def __init__(self, limit: int = 64) -> None:
        self._heap: list[Job] = []
        self.limit = limit

    def push(self, job: Job) -> bool:
        if len(self._heap) >= self.limit:
            return False
        heapq.heappush(self._heap, job)
        return True

    def drain(self):
        while self._heap:
            job = heapq.heappop(self._heap)
            yield job.name, job.cost * 1.25


for name, cost in Queue().drain():
    print(f"{name:>12}: {cost:8.3f} s")

// The same in TypeScript, without the limit.
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new RangeError('no values');
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

SELECT c.name, COUNT(o.id) AS orders, SUM(o.total) AS spent
FROM customers AS c LEFT JOIN orders AS o ON o.customer_id = c.id
WHERE o.created_at >= '2024-01-01' GROUP BY c.name HAVING COUNT(o.id) > 3 ORDER BY spent DESC LIMIT 20;

{"id": 4711, "status": "shipped", "items": [{"sku": "A-103", "qty": 2, "price": 19.9}, {"sku": "B-7", "qty": 1, "price": 4.25}],
 "address": {"street": "12 Elm Road", "city": "Leeds", "zip": "LS1 4DY"}, "notes": null, "gift": false}
`,
  `User: I have to be in Lyon by noon on Thursday and I would rather not fly. What are my options from Cologne?
Assistant: There are two that fit. The 5:43 train to Brussels connects with a direct high-speed service and arrives at 11:35; the
night bus leaves at 22:10 and gets in at 9:50. The train costs more but runs on time more often. Shall I compare the prices?
User: Yes, and tell me whether I can take a bicycle.

Steps to restore a wooden chair:
1. Remove loose screws and label them.
2. Sand along the grain, first with grit 80, then 120, then 240.
3. Wipe off the dust with a damp cloth and let the wood dry for 30 minutes.
4. Apply two thin coats of oil, four hours apart.

| Year | Area (km²) | Population | Density |
| ---- | ---------- | ---------- | ------- |
| 1990 | 412.6      | 1,204,310  | 2,919   |
| 2020 | 418.0      | 1,538,772  | 3,681   |

If f(x) = 3x² − 5x + 2, then f′(x) = 6x − 5, which is zero at x = 5/6. There f has the value 3·25/36 − 25/6 + 2 = −1/12, so the
parabola dips just below the axis between its roots 2/3 and 1.

Der Winter kam früh in diesem Jahr. Schon Anfang November lag Schnee auf den Dächern, und die Kinder zogen ihre Schlitten durch
die leeren Straßen. Am Abend brannte in jedem Fenster ein Licht. Le marché ouvrait à sept heures ; on y vendait des pommes, du
fromage de brebis et des fleurs coupées le matin même. Nadie sabía quién había dejado la carta sobre la mesa, pero todos la habían
leído. 春天来的时候，河边的柳树先绿了，孩子们在岸上放风筝。Поезд опаздывал на двадцать минут, и на платформе становилось холодно.
`,
];
