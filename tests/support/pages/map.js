let pins = [], undone = [], visited = [];
K.cases = [0, 1].map(n => ({id: n, label: 'case ' + n, states: ['CA', 'TX'].slice(n), pins: [],
  route: ['CA', 'NV', 'UT', 'CO'].slice(n)}));
const R = {
  around: m => `[data-state="${m.state}"]`, words: m => ['select', m.state],
  entry(state) { S.status = 'Selected: ' + state;
    if (S.h.some(m => m.state === state)) return null;
    S.totals.states += 1; return {state}; },
  paint() { document.querySelectorAll('[data-state]').forEach(e => {
    const on = S.h.some(m => m.state === e.dataset.state) || visited.includes(e.dataset.state) ? '#f80' : '#ccc';
    if (e.getAttribute('fill') !== on) e.setAttribute('fill', on); }); },
  clear() { pins = []; visited = []; },
  more: () => ({pins}), back(v) { pins = v.pins; },
  click(e) { if (e.dataset.state) play(e.dataset.state); },
  load(c) { c.states.forEach(s => play(s)); S.banner = c.label; note('route', c.route.join(' ')); },
  async run(c, ms) { await R.tour(c.route, ms); },
  async tour(route, ms) { S.busy = true; visited = []; note('tour start');
    for (const s of route) { visited.push(s); S.n += 1; note('visit', s); paint(); await wait(ms); }
    S.busy = false; S.totals.routes += 1; S.banner = 'Tour complete'; note('tour finish'); paint(); },
  api: {
    describeLayout: () => ({mapBounds: corner('#map-container'), states: places('[data-state]', 'state'), pins}),
    debugState: () => ({selected: S.h.map(m => m.state), last: S.h.length ? S.h[S.h.length - 1].state : null}),
    setDemoSelection: list => list.forEach(s => play(s)),
    addPin(p) { pins.push(p); S.totals.pins += 1; undone = []; paint(); }, listPins: () => pins,
    undo() { if (pins.length) undone.push(pins.pop()); }, redo() { if (undone.length) pins.push(undone.pop()); },
    startTour: (route, options) => R.tour(route, options.intervalMs),
    checkCoverage: () => ({visited}),
    summarizeScenario: n => ({states: S.cases[n].states.length, pins: 0, route: S.cases[n].route.length}),
  },
};
