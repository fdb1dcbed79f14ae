for(const svg of document.querySelectorAll('svg.lanes')){
 const g=svg.querySelector('.plot'),axis=svg.querySelector('.axis'),L=+svg.dataset.labels,
  W=+svg.dataset.width,t0=+svg.dataset.begin,t1=+svg.dataset.end;let k=1,x=0;
 const draw=()=>{g.setAttribute('transform',`matrix(${k},0,0,1,${L+x},0)`);axis.textContent='';
  const a=t0+(t1-t0)*(-x/k)/W,b=t0+(t1-t0)*((W-x)/k)/W,
   d=Math.min(9,Math.max(3,Math.ceil(-Math.log10((b-a)/8))));
  for(let i=0;i<8;i++){const e=document.createElementNS('http://www.w3.org/2000/svg','text');
   e.setAttribute('x',L+W*i/8);e.setAttribute('y',14);
   e.textContent=(a+(b-a)*i/8).toFixed(d)+' s';axis.append(e)}};
 const at=e=>(e.clientX-svg.getBoundingClientRect().left)*(L+W)/svg.clientWidth-L;
 svg.addEventListener('wheel',e=>{e.preventDefault();const f=Math.exp(-e.deltaY/400),
  n=Math.min(1e6,Math.max(.2,k*f)),p=at(e);x=p-(p-x)*n/k;k=n;draw()},{passive:false});
 let from=null;
 svg.addEventListener('pointerdown',e=>{from=at(e)-x;svg.setPointerCapture(e.pointerId)});
 svg.addEventListener('pointermove',e=>{if(from!==null){x=at(e)-from;draw()}});
 svg.addEventListener('pointerup',()=>{from=null});
 svg.addEventListener('dblclick',()=>{k=1;x=0;draw()});draw();svg.dataset.ready='yes'}
