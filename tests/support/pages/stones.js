const MARKS = K.marks, WIN = K.win;
const R = {
  around: m => `[data-cell="${m.coord}"]`, words: m => [m.mark, m.coord],
  entry(place) {
    if (S.h.some(m => m.coord === place)) return null;
    return {coord: place, mark: MARKS[S.h.length % 2]};
  },
  after() { S.status = MARKS[S.h.length % 2] + ' to move';
    if (R.winner()) { S.over = true; S.banner = R.winner() + ' wins!';
      if (!S.busy && S.h.length !== S.counted) { S.totals[R.winner().toLowerCase()] += 1; S.counted = S.h.length; } } },
  winner() {
    for (const mark of MARKS) {
      const own = new Set(S.h.filter(m => m.mark === mark).map(m => m.coord));
      for (const c of own) for (const [dx, dy] of [[1, 0], [0, 1], [1, 1], [1, -1]]) {
        let n = 1, [x, y] = [c.charCodeAt(0), +c.slice(1)];
        while (own.has(String.fromCharCode(x + n * dx) + (y + n * dy))) n += 1;
        if (n >= WIN) return mark;
      }
    }
    return null;
  },
  paint() { document.querySelectorAll('.intersection').forEach(e => {
    const m = S.h.find(m => m.coord === e.dataset.cell); const t = m ? m.mark[0] : '';
    if (e.textContent !== t) e.textContent = t; }); },
  clear() { S.counted = 0; },
  click(e) { if (e.dataset.cell) play(e.dataset.cell); },
  load(c) { c.moves.forEach(m => play(m)); S.banner = c.winner; S.over = true; },
  async run(c, ms) {
    await replay(c.moves.map((m, n) => ({coord: m, mark: MARKS[n % 2]})), ms); },
  api: {
    describeLayout: () => ({startButton: centre('#start-btn'), legend: corner('#legend'),
      cells: places('.intersection', 'cell')}),
    debugState: () => ({moves: S.h, current: MARKS[S.h.length % 2]}),
    setDemoMoves: list => list.forEach(m => play(m.coord)),
    checkWinner: () => R.winner(),
    summarizeScenario: n => ({total: S.cases[n].moves.length, longest: 2}),
  },
};
