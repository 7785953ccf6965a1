const STATES = ['clear', 'warn'], FIELD = 'C3,C4,D3,D4,E3,E4,F3,F4,G3'.split(',');
const R = {
  around: m => `[data-cell="${m.coord}"]`, words: m => ['reveal', m.coord],
  entry: place => S.h.some(m => m.coord === place) ? null
    : {coord: place, state: STATES[S.h.length % 2]},
  after() { S.status = `Cells cleared: ${S.h.length} | Flags: 0`;
    if (R.cleared()) { S.over = true; S.banner = 'Field cleared!';
      if (!S.busy && !S.counted) { S.totals.cleared += 1; S.counted = 1; } } },
  cleared: () => FIELD.every(c => S.h.some(m => m.coord === c)),
  paint() { document.querySelectorAll('.cell').forEach(e => {
    const m = S.h.find(m => m.coord === e.dataset.cell), t = m ? m.state[0] : '';
    if (e.textContent !== t) e.textContent = t; }); },
  clear() { S.counted = 0; },
  click(e) { if (e.dataset.cell) play(e.dataset.cell); },
  load(c) { c.moves.forEach(m => play(m)); S.banner = c.winner; },
  async run(c, ms) {
    await replay(c.moves.map((m, n) => ({coord: m, state: STATES[n % 2]})), ms); },
  api: {
    describeField: () => ({hud: {startButton: centre('#start-btn')}, legend: corner('#legend'),
      cells: places('.cell', 'cell')}),
    debugField: () => ({reveals: S.h, flags: [], next: STATES[S.h.length % 2]}),
    setDemoSequence: list => list.forEach(m => play(m.coord)),
    checkStatus: () => R.cleared() ? 'cleared' : 'running',
    summarizeScenario: n => ({revealed: S.cases[n].moves.length, safe: 2}),
  },
};
