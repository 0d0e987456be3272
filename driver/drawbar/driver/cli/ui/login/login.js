// Sends the token in the body of a request, and keeps it nowhere.

const [form, token, enter, problem] = ["form", "token", "enter", "problem"].map((id) => document.getElementById(id));

form.addEventListener("submit", async (press) => {
  press.preventDefault();
  enter.disabled = true;
  problem.hidden = true;
  let sentence = "";
  try {
    const answer = await fetch("session", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token: token.value})});
    if (!answer.ok) sentence = (await answer.text()).trim();
  } catch {
    sentence = "The server does not answer.";
  }
  token.value = "";
  enter.disabled = false;
  if (!sentence) return location.reload();
  problem.textContent = sentence;
  problem.hidden = false;
  token.focus();
});
token.focus();
