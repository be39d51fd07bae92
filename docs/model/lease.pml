/*
 * Who is alive: heartbeats, leases, lapse and resume, confirmations, Down, refusal, restarts. With time.
 *
 * WHAT. One incarnation of one node N with three observers (so two leases are enough to hold, and two confirmations are
 * Down). Somebody, M, asks the observers. Never may N hold once M has found the incarnation Down; that is the lemma on which
 * record.pml and observers.pml build. A second lemma: while an observer's promise runs, N has no live lease from it.
 *
 * TIME. Integer ticks. Nothing is dated: every variable is the time that is left of something, or an age, and both stop at
 * a bound beyond which they make no difference. So the states are finitely many and the horizon has no end. Any number of
 * steps may happen within one tick, in any order.
 *
 * OVER-APPROXIMATIONS. Each adds behaviours, so what is proved with them holds without:
 *  - N may send at any moment, and any heartbeat ever sent may reach any observer at any later moment, again, out of order,
 *    or never. So loss, loss in one direction, delay, duplication and reordering are all included.
 *  - M may ask at any moment; an observer confirms whenever its count has run out, whether or not its own leases live, and
 *    also when it has heard N during its promise (except with LIVE).
 *  - An observer answers marked heartbeats without end (except with LIVE, where one span is the bound).
 *  - An observer that restarted answers marked heartbeats as soon as one of its acknowledgements has extended N's right.
 *    (The design's words allow it never; see README.md, "watched".)
 *  - A lapsed N may count leases that it got before, or for unmarked heartbeats, once an answer to a marked one completes them.
 * A stall of N is a time in which it does not send: it judges what it reads by the time at which the kernel got it, so its
 * right, as this model has it, is the same whether it reads at once or late. (Its guard silences it no later than that.)
 *
 * REDUCTIONS. Left out without FULL, because each is dominated (N would hold for a shorter time, or M find Down later):
 *  - Of the heartbeats that could arrive only the freshest of each kind does; an older one gives a shorter lease.
 *  - An acknowledgement that reaches N does so at once; one that comes later gives no more. A confirmation likewise.
 *  - The observers are interchangeable, so states are stored in sorted order (not with FULL).
 * With FULL all of that is let loose, at the smallest sizes, as a check of this reasoning.
 *
 * OPTIONS. I: ticks of an interval. K: multiplier. LEMMA: check the second lemma too. FULL. DRIFT: N's clock loses a tick in each span (against a margin of one).
 * SPANS: N names one of two spans in each heartbeat. RESTART: observers restart. STRICT: N, lapsed, counts nothing but answers to marked
 * heartbeats. UNSORTED: observers keep their numbers, for traces. LIVE: see lease-live.pml.
 * BROKEN RULES, each of which must be caught: RECEIPT REVIVE SHORTPROMISE AMNESIA RESTARTDOWN UNLEASED NOMARGIN LASTSPAN
 * HEARDAGAIN, and with LIVE: DEAF, MARKHEARD and NOTBACK (REDUNDANT). README.md says what they are.
 */
#ifndef I
#define I 2
#endif
#ifndef K
#define K 2
#endif
#define T (I * K)

/* A confirmation counts while the question is younger than one interval; the promise lasts one span and two intervals. */
#ifdef SHORTPROMISE
#define WINDOW (2 * I)
#define PROMISE I
#else
#define WINDOW (I - 1)
#define PROMISE (T + 2 * I)
#endif
#define LISTEN (T + I)
#define NOQUESTION (WINDOW + 1)

#if defined(DRIFT) && !defined(NOMARGIN)
#define MARGIN 1
#else
#define MARGIN 0
#endif

#ifdef SPANS
#define SHORTSPAN (T - I)
#else
#define SHORTSPAN T
#endif

/* Of each observer. */
byte left[3];     /* ticks until its count for N runs out; 0: N is silent for it */
byte promise[3];  /* ticks of its promise, or of its listening after a restart, that are left */
bit listens[3];   /* it is the listening */
bit confirmed[3]; /* it has confirmed this incarnation Down, and remembers it */
bit watched[3];   /* this life of it has watched N */
bit yes[3];       /* M has its confirmation for the present question */
/* Of N. */
byte lease[3];    /* ticks that are left of the lease from each observer */
bit up = 1;       /* it has its right; otherwise it has lapsed */
bit over;         /* it was refused: lapsed for good */
byte plain;       /* age of the freshest unmarked heartbeat: 0 while it is up */
byte marked = T;  /* age of the freshest marked one; T: of no use */
/* Of M. */
byte question = NOQUESTION; /* age of the question */
bit found;        /* N is Down */
#ifdef DRIFT
byte steady;      /* ticks until N's clock may lose one again */
#endif
byte gained, a, swap;

#define ENOUGH ((lease[0] > 0) + (lease[1] > 0) + (lease[2] > 0) >= 2)
#define LESS(x) (x > 0 -> x - 1 : 0)
#define MORE(x) (x < T -> x + 1 : T)

/* A marked heartbeat is answered by an observer that has watched N without a restart and never confirmed this incarnation. */
#ifdef REVIVE
#define ANSWERS(o) (promise[o] == 0)
#else
#define ANSWERS(o) (promise[o] == 0 && watched[o] && !confirmed[o] && WITHIN(o))
#endif

#ifdef UNLEASED
bit begun;
#define RIGHTFUL (up && ENOUGH)
#else
#define RIGHTFUL up
#endif

#if defined(LIVE) || defined(STRICT)
#define STRICTLY lease[0] = 0; lease[1] = 0; lease[2] = 0
#define COUNTED (answer || up)
#else
#define STRICTLY skip
#define COUNTED true
#endif

#ifdef FULL
byte ackplain[3], ackmarked[3]; /* what is left of the best lease that is under way to N, of each kind */
bit word[3];                    /* a confirmation is under way to M */
#ifdef RECEIPT
#define AGEACKS(o) skip
#else
#define AGEACKS(o) ackplain[o] = LESS(ackplain[o]); ackmarked[o] = LESS(ackmarked[o])
#endif
#else
#define AGEACKS(o) skip
#endif

#ifdef LIVE
byte window[3]; /* 0: no lapse heard of; T+1..2: ticks in which marked heartbeats are answered, plus one; 1: over */
#define AGEWINDOW(o) window[o] = (window[o] > 1 -> window[o] - 1 : window[o])
#define OPEN(o) window[o] = (window[o] == 0 -> T + 1 : window[o])
#define CLOSE(o) window[o] = 0
#ifdef DEAF
#define WITHIN(o) true
#else
#define WITHIN(o) (window[o] != 1)
#endif
#ifdef NOTBACK
#define HEARS(o) skip
#else
#define HEARS(o) left[o] = T
#endif
#else
#define OPEN(o) skip
#define CLOSE(o) skip
#define WITHIN(o) true
#define AGEWINDOW(o) skip
#endif

inline judge() {
	if
	:: up && !ENOUGH -> up = 0; marked = 0; plain = 0; STRICTLY;
#ifdef UNLEASED
	   /* A name that had no leases yet: not to have them is no lapse. */
	   if :: !begun -> up = 1 :: else fi;
#endif
	   printf("N lapses\n")
	:: else
	fi
}
inline resume() {
	if :: !up && !over && ENOUGH -> up = 1; plain = 0; printf("N resumes\n") :: else fi
}
inline ageobserver(o) {
	left[o] = LESS(left[o]);
	promise[o] = LESS(promise[o]);
	if :: promise[o] == 0 -> listens[o] = 0 :: else fi;
	AGEWINDOW(o)
}
inline ageholder() {
	lease[0] = LESS(lease[0]); lease[1] = LESS(lease[1]); lease[2] = LESS(lease[2]);
	AGEACKS(0); AGEACKS(1); AGEACKS(2);
	if :: up -> marked = MORE(marked) :: else -> plain = MORE(plain) fi;
	judge()
}
inline noquestion() {
	question = NOQUESTION; yes[0] = 0; yes[1] = 0; yes[2] = 0;
#ifdef FULL
	word[0] = 0; word[1] = 0; word[2] = 0
#endif
}
inline agequestion() {
	if
	:: question < NOQUESTION -> question++; if :: question == NOQUESTION -> noquestion() :: else fi
	:: else
	fi
}
inline tick() {
	ageobserver(0); ageobserver(1); ageobserver(2); agequestion()
}

/* What an observer does with a heartbeat that names a span. Its count never ends before one that it acknowledged earlier. */
#ifdef LASTSPAN
#define COUNT(o, span) left[o] = span
#else
#define COUNT(o, span) left[o] = (left[o] > span -> left[o] : span)
#endif
/* What is left of a lease for a heartbeat sent some ticks ago. */
#ifdef RECEIPT
#define REMAINS(span, age) (span)
#else
#define REMAINS(span, age) ((span) > (age) + MARGIN -> (span) - (age) - MARGIN : 0)
#endif

/* N gets a lease of `gained` ticks; `answer` says that it is an answer to a marked heartbeat. */
inline gets(who, answer) {
	if :: gained > lease[who] && COUNTED -> lease[who] = gained :: else fi;
	gained = 0;
#ifdef UNLEASED
	if :: ENOUGH -> begun = 1; up = 1 :: else fi
#else
	if :: up -> watched[who] = 1 :: else fi;
	if :: answer -> resume() :: else fi
#endif
}
inline confirm(who) {
	confirmed[who] = 1; promise[who] = PROMISE; listens[who] = 0
}
inline counts(who) {
	yes[who] = 1;
	if
	:: yes[0] + yes[1] + yes[2] >= 2 -> found = 1; noquestion(); printf("M has found N Down\n")
	:: else
	fi
}

inline sees(who) {
#ifdef HEARDAGAIN
	watched[who] = 1
#else
	skip
#endif
}

#ifndef FULL
inline heartbeat(x, span) {
	if
#ifdef LIVE
	:: promise[x] > 0 -> d_step { HEARS(x); printf("observer %d hears N during its promise\n", x) }
#endif
	:: promise[x] == 0 -> d_step { COUNT(x, span); CLOSE(x); sees(x); gained = REMAINS(span, plain); gets(x, 0);
		printf("observer %d acknowledges a heartbeat sent %d ticks ago\n", x, plain) }
	:: promise[x] == 0 -> d_step { COUNT(x, span); CLOSE(x); sees(x);
		printf("observer %d acknowledges a heartbeat; the acknowledgement is lost\n", x) }
	:: ANSWERS(x) && marked < T -> d_step { COUNT(x, span); OPEN(x);
		printf("observer %d answers a marked heartbeat sent %d ticks ago\n", x, marked);
		gained = REMAINS(span, marked); gets(x, 1) }
	:: ANSWERS(x) && marked < T -> d_step { COUNT(x, span); OPEN(x);
		printf("observer %d answers a marked heartbeat; the answer is lost\n", x) }
	fi
}
#else
inline heartbeat(x, span) {
	a = 0;
	do :: a < T -> a++ :: break od;
	if
	:: promise[x] == 0 && a >= plain -> d_step { COUNT(x, span); sees(x);
		if :: REMAINS(span, a) > ackplain[x] -> ackplain[x] = REMAINS(span, a) :: else fi;
		printf("observer %d acknowledges a heartbeat sent %d ticks ago\n", x, a) }
	:: ANSWERS(x) && a >= marked && a < T -> d_step { COUNT(x, span);
		if :: REMAINS(span, a) > ackmarked[x] -> ackmarked[x] = REMAINS(span, a) :: else fi;
		printf("observer %d answers a marked heartbeat sent %d ticks ago\n", x, a) }
	:: else
	fi;
	a = 0
}
#endif

inline observer(o) {
	if
	:: heartbeat(o, T)
#ifdef SPANS
	:: heartbeat(o, SHORTSPAN)
#endif
#ifdef FULL
	:: ackplain[o] > 0 -> d_step { printf("N gets an acknowledgement of observer %d\n", o);
		if :: up -> gained = ackplain[o]; gets(o, 0) :: else fi; ackplain[o] = 0 }
	:: ackmarked[o] > 0 -> d_step { printf("N gets an answer of observer %d\n", o); gained = ackmarked[o]; gets(o, 1); ackmarked[o] = 0 }
	:: question < NOQUESTION && !yes[o] && !word[o] && left[o] == 0 && !listens[o] ->
		d_step { confirm(o); word[o] = 1; printf("observer %d confirms\n", o) }
	:: question < NOQUESTION && word[o] -> d_step { word[o] = 0; printf("M counts the word of observer %d\n", o); counts(o) }
#else
	:: question < NOQUESTION && !yes[o] && left[o] == 0 && !listens[o] ->
		d_step { confirm(o); printf("observer %d confirms\n", o); counts(o) }
#ifdef LIVE
	:: question < NOQUESTION && !yes[o] && left[o] == 0 && !listens[o] ->
		d_step { confirm(o); printf("observer %d confirms; its word is lost\n", o) }
#endif
#endif
#ifdef RESTART
	:: d_step { printf("observer %d restarts\n", o); confirmed[o] = 0; watched[o] = 0;
#ifdef LIVE
		window[o] = 0;
#endif
#if defined(AMNESIA)
		left[o] = T; promise[o] = 0; listens[o] = 0
#elif defined(RESTARTDOWN)
		left[o] = 0; promise[o] = 0; listens[o] = 0
#else
		left[o] = T; promise[o] = LISTEN; listens[o] = 1
#endif
		}
#endif
	fi
}

#define BEFORE(i, j) (left[i] < left[j] || (left[i] == left[j] && (promise[i] < promise[j] || (promise[i] == promise[j] && \
	(lease[i] < lease[j] || (lease[i] == lease[j] && BITS(i) < BITS(j)))))))
#ifdef LIVE
#define BITS(i) (listens[i] + 2 * confirmed[i] + 4 * watched[i] + 8 * yes[i] + 16 * window[i])
#else
#define BITS(i) (listens[i] + 2 * confirmed[i] + 4 * watched[i] + 8 * yes[i])
#endif
#define EXCHANGE(x, i, j) swap = x[i]; x[i] = x[j]; x[j] = swap
inline order(i, j) {
	if
	:: BEFORE(j, i) -> EXCHANGE(left, i, j); EXCHANGE(promise, i, j); EXCHANGE(lease, i, j); EXCHANGE(listens, i, j);
		EXCHANGE(confirmed, i, j); EXCHANGE(watched, i, j); EXCHANGE(yes, i, j);
#ifdef LIVE
		EXCHANGE(window, i, j);
#endif
		swap = 0
	:: else
	fi
}
inline sort() {
#if defined(FULL) || defined(UNSORTED)
	skip
#else
	d_step { order(0, 1); order(1, 2); order(0, 1) }
#endif
}

inline check() {
	assert(!(found && RIGHTFUL));
#ifdef LEMMA
	assert(!(promise[0] && !listens[0] && lease[0]) && !(promise[1] && !listens[1] && lease[1]) && !(promise[2] && !listens[2] && lease[2]))
#endif
}
#ifdef LIVE
#include "lease-live.pml"
#endif

init {
	d_step {
		watched[0] = 1; watched[1] = 1; watched[2] = 1;
#ifdef UNLEASED
		marked = 0
#else
		left[0] = T; left[1] = T; left[2] = T;
		lease[0] = T - MARGIN; lease[1] = T - MARGIN; lease[2] = T - MARGIN
#endif
	};
	do
	:: atomic {
		if
		:: d_step { tick(); ageholder();
#ifdef DRIFT
			steady = LESS(steady);
#endif
			printf("--- a tick\n") }
#ifdef DRIFT
		:: steady == 0 -> d_step { tick(); steady = T - 1; printf("--- a tick that N's clock does not count\n") }
#endif
		:: observer(0)
		:: observer(1)
		:: observer(2)
		:: !found && question != 0 -> d_step { noquestion(); question = 0; printf("M asks\n") }
		:: found && !over && !up -> d_step { over = 1; printf("N is refused, and has lapsed for good\n") }
#ifdef LIVE
		:: calm()
#endif
		fi;
		check(); sort()
	}
	od;
done:
	skip
}
