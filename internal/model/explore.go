package model

// Finding is a course that breaks a promise.
type Finding struct {
	Broken string
	Course []string // what happened, from the start
}

// Explore goes through all states that can be reached, up to most of them. It returns how many there are, whether that
// was all of them, and the shortest course that breaks a promise, or nil.
func Explore(r Rules, most int) (states int, all bool, finding *Finding) {
	type visit struct {
		from int32
		did  string
	}
	first := r.start().canonical(r.Nodes)
	seen := map[key]struct{}{first.key(r.Nodes): {}}
	queue, visits := []state{first}, []visit{{from: -1}}
	for at := 0; at < len(queue); at++ {
		if len(queue) > most {
			return len(queue), false, nil
		}
		r.steps(queue[at], func(s state, did, broken string) {
			if finding != nil {
				return
			}
			s = s.canonical(r.Nodes)
			k := s.key(r.Nodes)
			if _, known := seen[k]; known && broken == "" {
				return
			}
			seen[k] = struct{}{}
			queue, visits = append(queue, s), append(visits, visit{int32(at), did})
			if broken != "" {
				finding = &Finding{Broken: broken}
				for i := int32(len(visits) - 1); i > 0; i = visits[i].from {
					finding.Course = append([]string{visits[i].did}, finding.Course...)
				}
			}
		})
		if finding != nil {
			return len(queue), false, finding
		}
	}
	return len(queue), true, nil
}
