const BLADES = ['red', 'blue'];
const R = {
  around: m => `[data-lane="${m.lane}"]`, words: m => [m.lane, 'sliced'],
  entry(lane) {
    if (S.h.some(m => m.lane === lane)) { S.status = 'Lane already cleared'; return null; }
    S.status = 'Combo building';
    return {lane, blade: BLADES[S.h.length % 2]};
  },
  after() { if (S.h.length === 5) { S.over = true; S.banner = 'Perfect combo!';
    if (!S.busy && !S.counted) { S.totals.perfect += 1; S.counted = 1; } } },
  paint() { document.querySelectorAll('.lane').forEach(e => {
    const m = S.h.find(m => m.lane === e.dataset.lane), t = m ? m.blade : e.dataset.lane;
    if (e.textContent !== t) e.textContent = t; }); },
  clear() { S.counted = 0; },
  click(e) { if (e.dataset.lane) play(e.dataset.lane); },
  load(c) { c.slices.forEach(m => play(m)); S.banner = c.winner; },
  async run(c, ms) { await replay(c.slices.map((lane, n) => ({lane, blade: BLADES[n % 2]})), ms); },
  api: {
    describeLayout: () => ({playButton: centre('#start-btn'), legend: corner('#legend'),
      targets: places('.lane', 'lane')}),
    debugState: () => ({score: S.h.length, combo: S.h.length, laneHistory: S.h, blade: 'red'}),
    setDemoSlices: list => list.forEach(m => play(m.lane)),
    checkCombo: () => S.h.length === 5 ? 'Perfect combo' : 'none',
    summarizeScenario: n => ({fruits: S.cases[n].slices.length, red: 1, blue: 1}),
  },
};
