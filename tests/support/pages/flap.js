let altitude = 0, score = 0, timer = null, outcome = '';
const R = {
  around: () => '.bird', words: m => [m.action || 'frame', m.tick],
  entry: () => ({action: 'flap', tick: Math.round(performance.now())}),
  after() { if (S.busy) return; altitude += 10; S.status = 'Flying…'; clearTimeout(timer);
    timer = setTimeout(() => { S.status = 'Paused'; paint(); }, 400); },
  paint() { const top = 300 - 10 * (S.h.length % 9) + 'px', e = $('.bird');
    if (e.style.top !== top) e.style.top = top; },
  begin() { addEventListener('keydown', e => { if (e.code === 'Space') { e.preventDefault(); play(); } }); },
  clear() { altitude = 0; score = 0; outcome = ''; clearTimeout(timer); },
  more: () => ({altitude, score, history: S.h}),
  back(v) { altitude = v.altitude; score = v.score; },
  click(e) { if (e.id === 'start-btn') { S.status = 'Flying…'; paint(); R.after(); paint(); } },
  load(c) { c.inputs.forEach(m => { S.h.push(m); note('tick', m.tick); }); S.banner = c.result; },
  async run(c, ms) { await replay(c.inputs, ms); },
  api: {
    describeStage: () => ({stage: corner('#stage'), startButton: centre('#start-btn'),
      pipes: [corner('.pipe')]}),
    debugState: () => ({ticks: S.n, altitude, velocity: 0, status: S.status, history: S.h}),
    queueInputs: list => list.forEach(() => play()),
    runScriptedCourse(frames) { S.h = [...frames]; frames.forEach(m => note(...R.words(m)));
      S.over = true; S.banner = 'Crashed!'; outcome = 'crashed'; note('outcome', 'crashed'); paint(); },
    rewind() { note('rewind'); S.u = S.h; S.h = S.h.slice(0, 2); paint(); },
    resume() { note('resume'); S.h = S.u; paint(); },
    getRunSummary: () => ({outcome, score: 2}),
    injectRunResult(r) { S.totals.attempts += 1; S.totals.best = Math.max(S.totals.best, r.score); },
    summarizeScenario: n => ({id: n, totalInputs: S.cases[n].inputs.length, longestGlide: 3}),
  },
};
