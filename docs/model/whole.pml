/*
 * The two halves together: leases with time, and one change of the record. A check that what record.pml assumes of lease.pml
 * is what lease.pml gives.
 *
 * WHAT. N holds by statement 0: (N/0, next M). Once, at any moment, statement 1 is swapped in: (N's present incarnation, next
 * A), or (A, next M), or (N's present incarnation, next M). N has three observers; it lapses, resumes, is over, and comes
 * back under incarnation 1. M and A find N's incarnations Down by asking, one question at a time, or hear that one is past.
 * M and A do not lapse here (record.pml has that). Never may two of the three hold rightfully.
 *
 * TIME, over-approximations and reductions are those of lease.pml, with these differences: N, lapsed, gets nothing from
 * unmarked heartbeats, so no ages are kept; observers do not restart; a promise about incarnation 0 does not keep an observer
 * from acknowledging what comes after it. Statements are those of record.pml: what is written there of acknowledgements
 * holds here. Between two incarnations N heartbeats under no name, and begins the next when it has enough leases.
 *
 * BROKEN RULES: SHORTPROMISE REVIVE UNLEASED OLDNEXT OLDRECORD NOINCARNATION. README.md says what they are.
 */
#ifndef I
#define I 1
#endif
#ifndef K
#define K 2
#endif
#define T (I * K)
#ifdef SHORTPROMISE
#define WINDOW (2 * I)
#define PROMISE I
#else
#define WINDOW (I - 1)
#define PROMISE (T + 2 * I)
#endif
#define NOQUESTION (WINDOW + 1)

byte left[3], promise[3], lease[3];
bit confirmed[3], yes[3];
/* N. */
#define UP 0
#define LAPSED 1
#define BETWEEN 2
byte state, holdsN = 1; /* holds: 0, or 1 + the statement by which it holds, or held before it lapsed */
bit inc, ended, ackN;   /* its incarnation; the last that is modelled is over; it has acknowledged statement 1 under incarnation 0 */
/* M and A. */
byte holdsM, holdsA;
bit ackM;
bit down[4];            /* 2 * asker (M 0, A 1) + incarnation: known to be Down */
byte question = NOQUESTION;
bit asker, asked;       /* who asks, about which incarnation */
/* The store: statement 1 is none, (N/given, A), (A, M) or (N/given, M). */
#define NONE 0
#define NTHENA 1
#define ATHENM 2
#define NTHENM 3
byte kind;
bit given;
byte swap;

#define ENOUGH ((lease[0] > 0) + (lease[1] > 0) + (lease[2] > 0) >= 2)
#define LESS(x) (x > 0 -> x - 1 : 0)
#ifdef NOINCARNATION
#define ISDOWN(who, k) (down[2 * (who)] || down[2 * (who) + 1])
#else
#define ISDOWN(who, k) (down[2 * (who) + (k)])
#endif
#ifdef OLDRECORD
#define NAMED(k) true
#else
#define NAMED(k) (inc == (k))
#endif
#ifdef UNLEASED
#define NAMEABLE true
#else
#define NAMEABLE (state != BETWEEN)
#endif
#define ISPAST(k) (inc > (k) || ended || (inc == 0 && state == BETWEEN))

/* Statement 1 in effect: N/0 and M, who could act on statement 0, have acknowledged it or are Down (M and A: as each knows). */
#define ACKEDN (ackN && inc == 0 && state != BETWEEN)
#ifdef OLDNEXT
#define EFFECTIVE(who) (ACKEDN || ISDOWN(who, 0))
#define EFFECTIVEN true
#else
#define EFFECTIVE(who) ((ACKEDN || ISDOWN(who, 0)) && ackM)
#define EFFECTIVEN ackM
#endif
#define HOLDERS ((holdsN && state == UP && ENOUGH) + (holdsM > 0) + (holdsA > 0))

inline judge() {
	if :: state == UP && !ENOUGH -> state = LAPSED; printf("N/%d lapses\n", inc) :: else fi
}
inline forgetpromises() {
	promise[0] = 0; promise[1] = 0; promise[2] = 0; confirmed[0] = 0; confirmed[1] = 0; confirmed[2] = 0
}
inline noquestion() {
	question = NOQUESTION; asker = 0; asked = 0; yes[0] = 0; yes[1] = 0; yes[2] = 0
}
inline age(o) {
	left[o] = LESS(left[o]); promise[o] = LESS(promise[o]); lease[o] = LESS(lease[o])
}
inline tick() {
	age(0); age(1); age(2);
	if :: question < NOQUESTION -> question++; if :: question == NOQUESTION -> noquestion() :: else fi :: else fi;
	judge()
}
inline regain() {
	if
	:: state == LAPSED && ENOUGH -> state = UP; printf("N/%d resumes\n", inc)
	:: state == BETWEEN && ENOUGH -> state = UP;
#ifndef UNLEASED
		inc = 1;
#endif
		printf("N/%d begins\n", inc)
	:: else
	fi
}
#ifdef REVIVE
#define ANSWERS(o) (state != LAPSED || promise[o] == 0)
#else
#define ANSWERS(o) (state != LAPSED || (promise[o] == 0 && !confirmed[o]))
#endif
#define MAYACK(o) (ANSWERS(o) && (state == BETWEEN || promise[o] == 0))
#define FINAL ended

inline observer(o) {
	if
	:: MAYACK(o) && !FINAL -> d_step { left[o] = T; lease[o] = T; printf("observer %d acknowledges N\n", o); regain() }
	:: MAYACK(o) && left[o] < T -> d_step { left[o] = T; printf("observer %d acknowledges N; it is lost\n", o) }
	:: question < NOQUESTION && !yes[o] && left[o] == 0 -> d_step {
		yes[o] = 1; printf("observer %d confirms N/%d\n", o, asked);
		if :: asked == inc && (state != BETWEEN || inc == 1) -> promise[o] = PROMISE; confirmed[o] = 1 :: else fi;
		if :: yes[0] + yes[1] + yes[2] >= 2 -> down[2 * asker + asked] = 1; printf("N/%d is Down for %d (M 0, A 1)\n", asked, asker); noquestion()
		:: else
		fi }
	fi
}
inline store() {
	if
	:: kind == NONE && NAMEABLE -> d_step { kind = NTHENA; given = inc; printf("store: statement 1 is owner N/%d, next A\n", inc) }
	:: kind == NONE -> d_step { kind = ATHENM; printf("store: statement 1 is owner A, next M\n") }
	:: kind == NONE && NAMEABLE -> d_step { kind = NTHENM; given = inc; printf("store: statement 1 is owner N/%d, next M\n", inc) }
	fi
}
inline acts() {
	if
	/* Acknowledgements of statement 1. */
	:: kind != NONE && state != BETWEEN && inc == 0 && !ackN -> d_step { ackN = 1;
		if :: holdsN && (kind == ATHENM || !NAMED(given)) -> holdsN = 0 :: else fi;
		printf("N/0 acknowledges 1; holds %d\n", holdsN > 0) }
	:: kind != NONE && !ackM && !holdsM -> d_step { ackM = 1; printf("M acknowledges 1\n") }
	/* Statement 0. */
	:: !holdsN && state == UP && NAMED(0) && !ackN -> holdsN = 1; printf("N/%d holds as owner by 0\n", inc)
	:: !holdsM && !ackM && ISDOWN(0, 0) -> holdsM = 1; printf("M takes as next by 0\n")
	/* Statement 1. */
	:: (kind == NTHENA || kind == NTHENM) && !holdsN && state == UP && NAMED(given) && EFFECTIVEN && (inc == 1 || ackN) ->
		holdsN = 2; printf("N/%d holds as owner by 1\n", inc)
	:: kind == NTHENA && !holdsA && EFFECTIVE(1) && ISDOWN(1, given) -> holdsA = 2; printf("A takes as next by 1\n")
	:: kind == ATHENM && !holdsA && EFFECTIVE(1) -> holdsA = 2; printf("A holds as owner by 1\n")
	:: kind == NTHENM && !holdsM && ackM && EFFECTIVE(0) && ISDOWN(0, given) -> holdsM = 2; printf("M takes as next by 1\n")
	fi
}

#define KEY(i) (((left[i] * 16 + promise[i]) * 16 + lease[i]) * 4 + 2 * confirmed[i] + yes[i])
#define EXCHANGE(x, i, j) swap = x[i]; x[i] = x[j]; x[j] = swap
inline order(i, j) {
	if
	:: KEY(i) > KEY(j) -> EXCHANGE(left, i, j); EXCHANGE(promise, i, j); EXCHANGE(lease, i, j); EXCHANGE(confirmed, i, j);
		EXCHANGE(yes, i, j); swap = 0
	:: else
	fi
}

init {
	d_step {
		left[0] = T; left[1] = T; left[2] = T; lease[0] = T; lease[1] = T; lease[2] = T
	};
end:
	do
	:: atomic {
		if
		:: d_step { tick(); printf("--- a tick\n") }
		:: observer(0)
		:: observer(1)
		:: observer(2)
		:: state == LAPSED -> d_step { state = BETWEEN; holdsN = 0; ackN = 0; forgetpromises(); printf("N/%d is over\n", inc);
#ifdef UNLEASED
			/* The next one has its name at once. */
			if :: inc == 0 -> inc = 1 :: else -> ended = 1 fi;
#else
			ended = inc;
#endif
			lease[0] = 0; lease[1] = 0; lease[2] = 0 }
		:: question == NOQUESTION && !down[0] -> d_step { question = 0; printf("M asks about N/0\n") }
		:: question == NOQUESTION && !down[2] -> d_step { question = 0; asker = 1; printf("A asks about N/0\n") }
		:: question == NOQUESTION && !down[1] && inc == 1 -> d_step { question = 0; asked = 1; printf("M asks about N/1\n") }
		:: question == NOQUESTION && !down[3] && inc == 1 -> d_step { question = 0; asker = 1; asked = 1; printf("A asks about N/1\n") }
		:: question < NOQUESTION && question > 0 -> d_step { noquestion(); printf("the question is dropped\n") }
		:: ISPAST(0) && !down[0] -> down[0] = 1; printf("M hears that N/0 is past\n")
		:: ISPAST(0) && !down[2] -> down[2] = 1; printf("A hears that N/0 is past\n")
		:: store()
		:: acts()
		fi;
		assert(HOLDERS <= 1);
		d_step { order(0, 1); order(1, 2); order(0, 1) }
	}
	od
}
