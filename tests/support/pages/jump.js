const R = {
  around: () => '.platform', words: m => [m.holdMs, m.target, m.result, m.holdMs / 4],
  entry: m => S.h.some(o => o.id === m.id) ? null : m,
  combo: () => S.h.length >= 5 && S.h.every(m => m.result === 'landed'),
  after() { S.status = 'Jump landed'; if (R.combo()) { S.over = true; S.banner = 'Perfect chain!';
    if (!S.busy && !S.counted) { S.totals.perfect += 1; S.counted = 1; } } },
  paint() { const left = 40 + 30 * S.h.length + 'px', e = $('.avatar');
    if (e.style.left !== left) e.style.left = left; },
  clear() { S.counted = 0; },
  load(c) { c.script.forEach(m => play(m)); S.banner = c.result; },
  async run(c, ms) { await replay(c.script, ms); },
  api: {
    describeStage: () => ({launchButton: centre('#launch-btn'), avatar: {x: 0, y: 0},
      platforms: {current: centre('#p0'), next: centre('#p1')}}),
    debugRun: () => ({phase: 'idle', jumps: S.h}),
    async setDemoJumps(list) { for (const m of list) {
      S.status = 'Charging'; paint(); await wait(60); play(m);
      S.status = 'Jump landed'; paint(); } },
    rewind() { S.u.push(S.h.pop()); paint(); }, fastForward() { S.h.push(S.u.pop()); paint(); },
    checkLandingStatus: () => R.combo() ? 'combo' : 'none',
    summarizeChallenge: n => ({hops: S.cases[n].script.length, far: 80}),
  },
};
