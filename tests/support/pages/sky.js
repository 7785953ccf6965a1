let on3d = true, on2d = false, planet = null, list = [], speed = 1, playing = false, frames = 0, keys = [];
K.cases = [0, 1].map(n => ({id: n, label: 'case ' + n, planets: ['earth', 'mars', 'venus'].slice(n), camera: {}}));
const mode = () => on3d && on2d ? 'compare' : on3d ? '3d' : '2d';
const say = () => { S.status = {'3d': '3D global view', '2d': '2D view', compare: '3D with 2D comparison'}[mode()]
  + (planet ? ': ' + planet : ''); };
const R = {
  paint() { say(); $('#view-3d').style.opacity = on3d ? 1 : 0.3; $('#view-2d').style.opacity = on2d ? 1 : 0.3;
    document.querySelectorAll('[data-planet]').forEach(e => e.classList.toggle('on', e.dataset.planet === planet));
    $('#info-panel').textContent = planet ? planet + ' spin ' + planet.length * 7 : '';
    $('.orbit').style.left = 10 * (S.n % 50) + 'px'; },
  pick(name) { if (S.busy) return; planet = name; S.n += 1; paint(); },
  begin() { setInterval(() => { if (!playing) return; frames += 1; keys.push({angle: frames * speed}); }, 30); },
  clear() { planet = null; list = []; $('#cards').textContent = ''; },
  click(e) { if (S.busy) return;
    if (e.id === 'toggle-3d') on3d = !on3d; if (e.id === 'toggle-2d') on2d = !on2d;
    if (e.dataset.planet) R.pick(e.dataset.planet);
    if (e.id === 'play-tour') playing = true;
    if (e.id === 'compare-view') $('#cards').textContent = list.join(' beside ');
    paint(); },
  load(c) { R.pick(c.planets[0]); },
  async run(c, ms) { S.busy = true; for (const p of c.planets) { planet = p; S.n += 1; paint(); await wait(ms); } S.busy = false; },
  api: {
    describeLayout: () => ({view3d: corner('#view-3d'), view2d: corner('#view-2d'), menu: corner('#planet-menu'),
      info: corner('#info-panel'), toggles: {start: corner('#start-btn')}}),
    debugState: () => ({viewMode: mode(), activePlanet: planet, compared: list, infoText: ''}),
    setActivePlanet: name => R.pick(name),
    telemetry: () => ({playing, speed, frameCount: frames, activePlanet: planet}),
    setDemoKeyframes() {}, exportKeyframes: () => keys,
    setComparison(l) { list = [...l]; }, getComparison: () => ({list, view: mode()}),
    serializeState: () => JSON.stringify({mode: mode(), planet, list, speed}),
    applyState(t) { const v = typeof t === 'string' ? JSON.parse(t) : t; planet = v.planet; list = v.list; speed = v.speed; paint(); },
    summarizeScenario: n => ({bodies: S.cases[n].planets.length, distance: 4}),
  },
};
addEventListener('input', e => { if (e.target.id === 'orbit-speed') speed = +e.target.value; });
