/**
 * Sets of characters as the Rust library tokenizers 0.23.3 has them, which is at several versions of Unicode.
 * Made by scripts/make-unicode-sets.py: ranges, each the gap since the last one and its length less one, in base 36.
 */

/** What `Punctuation` and `BertPreTokenizer` cut at. */
export const PUNCTUATION =
  'x.e b.6 r.5 r.3 z 6 4 b.1 4 4 jj 9 cz.5 16.1 1g 2 3 3 19.1 l.1 2.1 e 3.1 23.3 2v 18.d 6i.2 1j.e w 7a.1 b ao lg 2j b.1 4p.e 2 12.3 20 23.4 5.1 34.5 4s h1.8 48 h9.1 19.1 27.2 20.1 4e.2 2.2 12.a 8q.1 61.1 3l.6 2.5 4t.6 4c.3 1o.4 1r.1 1t.7 c n1.n 9.j 2.c 2.b v.1 f.1 hm.3 u.1 u6.d 28.1 w.9 b8.l 1s.3 x.1 l8.3 2.1 35 40.1a 2.i cf.2 5.9 3.b h d 2r 2j mwz.1 7i.2 2s b 38.5 al.3 2f.1 15.2 2 1e.1 1c 2q.c h.1 3h.3 3j.1 h.1 6y g2b.1 5t.9 n.y 2.d 2 5 2.1 46.2 2.5 2.3 b.1 4.1 r.2 2 s 2 2.6 bf.2 il 1d bj ko 5k w 7l.8 13 35.6 1v.6 2i.3 x7.6 32.1 2.3 3j.3 1d.1 28.4 4 e 2.2 2h.5 30 f1 6z.m 2y.2 6x.2 2lu.4 dtm.1 3q 1u.4 9 g2j 5wo.4';

/** What `StripAccents` removes. */
export const COMBINING_MARKS =
  'lc.33 7o.6 7c.18 2 2.1 2.1 2 21.a 1d.k h 2u.6 3.5 3.1 2.3 10 v.q 2k.a 1n.8 z.3 2.8 2.2 2.4 18.2 3d.d 2.w 1j.2 2.h 2.6 b.1 u.2 1l 2.6 3.1 3.2 a b.1 u.2 1l 2.4 5.1 3.2 4 v.1 4 c.2 1l 2.7 2.2 2.2 l.1 u.2 1l 2.6 3.1 3.2 9.1 b.1 v 1o.4 4.2 2.3 a 15.3 1n.6 2.2 2.3 8.1 c.1 u.2 1l 2.6 2.2 2.3 8.1 c.1 u.2 1n.6 2.2 2.3 a b.1 v.1 1z 5.5 2 2.7 j.1 1q 3.6 d.7 2r 3.5 2.1 c.5 23.1 s 2 2 5.1 1e.j 2.1 6.a 2.z a 2t.j o.3 5.2 2.2 3.6 4.3 e.b 2 b.3 jk.2 qb.2 u.2 u.1 v.1 1t.v a 1a.2 3c.1 z 3b.b 5.b 64.4 1m.9 2.s 3 1d.e 1u.4 1c.g 13.8 d.2 v.c 1l.d 1d.j 49.2 2.k 5 5.2 4.1 5j.1h 6.4 k1.w 2db.2 3y 2p.v ff.5 2y.1 n9x.3 2.9 x.1 29.1 7l 4 5 o.4 2h.1 1f.h r.h 1h.7 q.c 19.3 1c.d 11 1w.d d 9.1 1a.2 1f 2.2 3.1 6.1 2 16.4 6.1 6l.7 2.1 fn5 ki.f h.f r2 6b 46.4 1af.2 2.1 6.3 15.2 5 4m.1 10a.2 1i.e 1l.3 1a.a 1y.2 11.d 1r d.2 1d.d a.2 2o.b 7 4h.b m.3 1l 2.6 3.1 3.2 a b.1 3.6 4.4 5d.h 2y.j 6k.6 3.8 s.1 2b.g 2z.c 2u.e zo.7 2.7 2b.l 2.d fga.4 1o.6 t7.19 h.3 f7v.1 43r.4 4.5 9.7 3.6 v.3 45.2 1j0.1i 5.1d 9 f n.4 2.e 11t.6 2.g 3.6 2.1 2.4 1pi.6 32.6 gzhy.6n';

/** What `BertNormalizer` removes with `strip_accents`, of decomposed text. */
export const NONSPACING_MARKS =
  'lc.33 7o.4 7e.18 2 2.1 2.1 2 21.a 1d.k h 2u.6 3.5 3.1 2.3 10 v.q 2k.a 1n.8 z.3 2.8 2.2 2.4 18.2 3s.v 1k 2 5.7 5 4.6 b.1 u 1n 5.3 9 l.1 u.1 1m 5.1 5.1 3.2 4 v.1 4 c.1 1m 5.4 2.1 5 l.1 u 1n 3 2.3 9 9 c.1 v 1q d 1f 1q.2 6.2 2.3 8.1 c.1 u 1n 3 7 6.1 l.1 u 1s.3 9 l.1 2v 8.2 2 2j 3.6 d.7 2r 3.5 2.1 c.5 23.1 s 2 2 1k.d 2.4 2.1 6.a 2.z a 2v.3 2.5 2.1 3.1 q.1 5.2 h.3 e 3.1 7 g jk.2 qb.2 u.2 u.1 v.1 1t.1 2.6 9 3.a a 1a.2 4c 3b.2 5.1 a 7.2 64.1 3 1n 2.6 2 2 3.7 7.9 3 1d.d 1v.3 1d 2.4 2 6 15.8 d.1 x.3 3.1 2.2 1l 2.1 4 2.2 1n.7 3.1 49.2 2.c 2.6 5 7 4.1 5j.1h 7.3 k1.c 5 4.b 2db.2 3y 2p.v ff.3 30.1 n9x 5.9 x.1 29.1 7l 4 5 q.1 4e s.h 1h.7 q.a 1b.2 1d 3.3 3 15 1w.5 3.1 3.1 d 9 1c 1g 2.2 3.1 6.1 2 17.1 9 6n 3 5 fn5 ki.f h.f r2 6b 46.4 1af.2 2.1 6.3 15.2 5 4m.1 10b 1j.e 1l.2 1e.3 3.1 1y.2 11.4 2.7 1r d.1 1h.8 c.2 2r.2 3 2.1 4o 4.7 m.1 1n 4 12.6 4.4 8v.5 2 5.1 2.1 6n.3 7.1 2.1 s.1 2e.7 3 2.1 2z 2 3.5 2 2u.2 3.3 2.4 gjp.4 1o.6 ux.3 f7v.1 43t.2 i.7 3.6 v.3 45.2 1j0.1i 5.1d 9 f n.4 2.e 2sh.6 gzl6.6n';

/** What `BertNormalizer` removes with `clean_text`. */
export const CONTROLS =
  '0.8 3.1 2.h 2o.w e 11v.5 n 5d 1e 3cv 1kt.4 r.4 1e.4 2.9 11u9.4xr 16o 6y.2 2 3b4 xyb.3 440.7 h407 v.2n 1egx.1ekd 3.1ekd';

/** What `BertNormalizer` sets apart by spaces. */
export const CHINESE = 'a9s.533 1t.g73 hkx.e7 1fk1.wyn x.3dr 75.49b 85t.f3';

/** What normal forms leave as it is, though newer versions of Unicode do not. */
export const FOREIGN_TO_NORMAL_FORMS =
  '120 1f.1 1o.1 fo 4a.8 17.9 8b fy 73.1 am 1nf q2.1d li.4 ir.2 3mo n3m.3 1k n1 huo r bh.4 2.15 2.d 12d.3 1u.4 8u.1 v.4 x.b 2.2 1z.a 1e.3 6j jv 20 2 9 3 1g 2.1 6.2 3y rf.1 72 5.1 5 4d 2c j 2a ix 2.1 2a bu.1 d0f.7 7 2ex.2 hy.1 cvm.3 5gw.z tq.1 88.2 9.1 3 x.1 th 1rj 1k.1e 1d.1p y 4h.6 ag 1q.3 e5.3 73.1 6s 3 8.1 6 22f 22s.9';

/** What has no script for `UnicodeScripts`, though newer versions of Unicode give it one. */
export const WITHOUT_SCRIPT =
  'w 114 8 14 3.1 1o.1 12 1a dc.2 2p.a 6.x 6.8 m 9.l 89.2 3c 3o.5 2c.2 4v 1k w.1 q d 2g.1 m d 4 1j.1 1x 79 3 3 2.5 5 8 8.1 3 e k 1mn 8 a 6o 2x g7.1d 2k 2.1 1a.2 7e.1 6.16 3.2 1k 3 70.4 id e.2 w.5 mz 14.2 1gt.1 z.2 d 9.p 5.f 1c 1c di.o 3.3 bd.3 8f.1 3w.4 11.1 a 7k 59z.9 g7r.15 1io 9.11 5 f.5 1i 5u.1 h3.7 adv.4xr jn.g a6.f 1t.1 1j.7 1b.1 pp b5.2 g1.a 2.e 2.6 2.1 2.a 2.e 2.6 2.1 4.1f b1.5 2.15 2.d ap.p 63.1 j jc.13 9.9 7.11 4.s 9.1 6p.15 2.2 3.1 h.5 2.11 2.1j 9.15 n.p 13.r l.m 3e.5 25 b 3b.3 3r.1 34.2 6y 1x.9 2 3 2.11 2.9 2 3 2.3 2.9 2.1 9.1 3c 4.3 gn.1 n.j 1j 12.6 56.1n 5h.6 3 3.7 2.1 2.t 2.1 3.b a.9 1z.7 3.19 3.a s.1z 9.2a e.f 1t.a 2e.7 2h.x f.9 7b.6 2.1 2.17 4 2.1 2.8 9.9 7.5 2.1 2.10 2.1 2.5 8.9 7.17 5.9 7.1 6n.o 8.g 2.14 4.s 2e g.1d e vk 6.a 5t.8m 1sa.2q u5.12 b.32y 5qe.1l 1tj.26 2.9 hj.1l 5j.2i 6.o 3.o 36.5 5 1c.8 2i.3 c.6 4qf.i l0.dj 11.x 2o.36 e.pd f.1e 5y6.3 2.6 2.1 4.86 a u.2 3 f.4 8.az 4xx.70 4.c3 7.m 2.2 9.w 3.19 3.m a.37 9w.1 5d.m 29.1d 1r.j d.j 3j.6 mm uy.s ro.3l f.6 1j.1e 1d.1p y 35.18 4.d 3.9 5.1 8x.u i.1l 6 cx.15 5z.16 5 5d.u 2.l 9.1 69.6 2.3 2.1 2.e 99 me.1v 25.1o r4.2 w 1p.3 1q.1 4y.5 vi.6 3.3 o.5 3c.b 2e.6 5.b 5.f 4x.b 5.1 f.8 14.f g 9.7 2.1 d d.3 g.w j.19 2.46 9.d 3.c 4.1y 2 4.h 2.c 4.b 6.42 2.2u xr1.8 386.a 67 4g4.b 3.5rk g.h9 3hf.3t6 6.6jt upz.8qn fgzl.1ekd 3.1ekd';
