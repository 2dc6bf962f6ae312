"""Words, facts and sentence patterns from which ``embedded_text`` writes dialogues and tales.

Every line here is this repository's own (Apache-2.0).
"""
# ruff: noqa: E501 - a row of a table stays on one line

from __future__ import annotations


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")] for row in text.strip().splitlines()]


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in _rows(text)]


# name | legs | it ... (sound) | it lives ... | it eats ... | young
ANIMALS = _rows("""
dog | four | says woof | in a house with people | meat and dog food | puppy
cat | four | says meow | in a house with people | fish and meat | kitten
cow | four | says moo | on a farm | grass and hay | calf
horse | four | neighs | on a farm | grass, hay and apples | foal
sheep | four | says baa | on a farm | grass | lamb
pig | four | says oink | on a farm | almost anything | piglet
duck | two | says quack | near the water | plants and small fish | duckling
hen | two | clucks | on a farm | seeds and worms | chick
owl | two | says hoot at night | in the forest | mice and small birds | owlet
mouse | four | squeaks | in a small hole | seeds and cheese | pup
fox | four | barks and yelps | in the forest | mice, birds and berries | kit
bear | four | growls | in the forest | fish, berries and honey | cub
wolf | four | howls at the moon | in the forest with its pack | meat | pup
lion | four | roars | on the grass plains of Africa | meat | cub
elephant | four | makes a loud sound with its trunk | in Africa and Asia | leaves and grass | calf
monkey | two | chatters | in the trees of warm forests | fruit and nuts | infant
frog | four | croaks | near a pond | flies and other insects | tadpole
bee | six | buzzes | in a hive | nectar from flowers | larva
rabbit | four | is very quiet | in a hole in the ground | grass and carrots | kit
squirrel | four | chatters | in a tree | nuts and seeds | kit
goat | four | bleats | on farms and in the mountains | grass and leaves | kid
deer | four | is very quiet | in the forest | grass and leaves | fawn
penguin | two | honks | where it is cold, near the sea | fish | chick
turtle | four | is very quiet | in water and on land | plants and small fish | hatchling
tiger | four | roars | in the forests of Asia | meat | cub
swan | two | hisses when it is angry | on lakes and rivers | water plants | cygnet
""")

CAPITALS = _rows("""
France | Paris | Europe
Germany | Berlin | Europe
Italy | Rome | Europe
Spain | Madrid | Europe
Portugal | Lisbon | Europe
Ireland | Dublin | Europe
Norway | Oslo | Europe
Sweden | Stockholm | Europe
Finland | Helsinki | Europe
Denmark | Copenhagen | Europe
Poland | Warsaw | Europe
Austria | Vienna | Europe
Greece | Athens | Europe
Hungary | Budapest | Europe
Iceland | Reykjavik | Europe
Japan | Tokyo | Asia
China | Beijing | Asia
India | New Delhi | Asia
Thailand | Bangkok | Asia
South Korea | Seoul | Asia
Egypt | Cairo | Africa
Kenya | Nairobi | Africa
Morocco | Rabat | Africa
Ghana | Accra | Africa
Canada | Ottawa | North America
Mexico | Mexico City | North America
Cuba | Havana | North America
Brazil | Brasilia | South America
Peru | Lima | South America
Chile | Santiago | South America
Argentina | Buenos Aires | South America
Australia | Canberra | Oceania
""")

FOODS = _rows("""
banana | yellow | sweet and soft | fruit
lemon | yellow | sour | fruit
apple | red or green | sweet and fresh | fruit
orange | orange | sweet and a little sour | fruit
cherry | red | sweet | fruit
strawberry | red | sweet | fruit
blueberry | blue | sweet and a little sour | fruit
plum | purple | sweet | fruit
pear | green or yellow | sweet and soft | fruit
carrot | orange | a little sweet | vegetable
cucumber | green | fresh and mild | vegetable
potato | brown | mild | vegetable
onion | white or red | sharp | vegetable
cabbage | green | mild | vegetable
radish | red and white | sharp | vegetable
pumpkin | orange | mild and a little sweet | vegetable
""")

WHY = _pairs("""
Why is the sky blue? | The sky is blue because air scatters blue light more than red light.
Why do we sleep? | We sleep so that our body and our mind can rest and grow strong.
Why is the sea salty? | Rivers carry salt from the rocks to the sea, and the salt stays there.
Why do leaves fall in autumn? | Trees drop their leaves to save water in the cold winter.
Why does ice float? | Ice floats because it is lighter than the water around it.
Why is there day and night? | The Earth turns around once a day, so the sun seems to rise and set.
Why do we have seasons? | The Earth is tilted, so each half gets more sun in its summer.
Why do birds fly south? | Many birds fly south in autumn to find food and warm weather.
Why do cats purr? | Cats often purr when they are calm and happy.
Why do we need water? | Water carries food and keeps every part of the body working.
Why do plants need light? | Plants use light to make their own food from air and water.
Why does it rain? | Water rises from the sea, makes clouds, and falls down again as rain.
Why do bees visit flowers? | Bees visit flowers to collect nectar and pollen.
Why is snow white? | Snow is white because its small crystals reflect all colours of light.
Why do we brush our teeth? | We brush our teeth to keep them clean and healthy.
Why does the moon shine? | The moon shines because it reflects the light of the sun.
Why should I read books? | Books teach you new things and let you see the world with other eyes.
Why do people laugh? | People laugh when something is funny, and it helps them feel close.
Why do we cook food? | Cooking makes food soft, safe and tasty.
Why do dogs wag their tails? | Dogs often wag their tails when they are happy or excited.
""")

DEFINITIONS = _pairs("""
bridge | a road over water or over a valley
library | a place where you can read and borrow books
river | a long stream of water that flows to the sea
mountain | a very high part of the land
island | a piece of land with water all around it
bakery | a shop that makes bread and cakes
hospital | a place where doctors and nurses help sick people
school | a place where children learn
museum | a place where you can see old and beautiful things
garden | a place where people grow flowers and vegetables
forest | a large place with many trees
desert | a dry place with sand and very little rain
clock | a machine that shows the time
map | a drawing that shows where places are
letter | a message on paper that you send to someone
bicycle | a vehicle with two wheels that you move with your feet
train | a row of cars that runs on rails
boat | a small vehicle that goes on water
lamp | a thing that gives light
key | a small thing that opens a lock
market | a place where people buy and sell things
farm | a place where people grow food and keep animals
star | a very big and very hot ball of gas far away
cloud | a group of tiny drops of water in the sky
volcano | a mountain that can throw out hot rock
cache | a place that keeps things so that you can find them quickly again
computer | a machine that works with numbers and words
robot | a machine that can do work by itself
umbrella | a thing that keeps you dry in the rain
pillow | a soft thing under your head when you sleep
""")

OPPOSITES = _pairs("""
hot | cold
big | small
long | short
old | new
fast | slow
happy | sad
light | dark
high | low
open | closed
early | late
full | empty
hard | soft
loud | quiet
wet | dry
rich | poor
strong | weak
day | night
up | down
left | right
clean | dirty
""")

JOBS = _pairs("""
teacher | helps people learn
doctor | helps sick people feel better
baker | makes bread and cakes
farmer | grows food and takes care of animals
pilot | flies a plane
sailor | works on a ship
cook | makes meals for people
writer | writes books and stories
painter | makes pictures with colours
carpenter | makes things from wood
gardener | takes care of plants
nurse | takes care of people in a hospital
driver | drives a bus, a car or a truck
singer | sings songs for people
fisherman | catches fish in the sea
builder | builds houses
""")

UNKNOWN = _pairs("""
What will the weather be tomorrow? | I am sorry, I do not know that. Please look at the sky or the news.
What is the news today? | I am sorry, I cannot read the news.
How much does this cost? | I am sorry, I do not know the price.
Where are my keys? | I do not know. Did you look on the table and in your bag?
Can you call my friend? | I am sorry, I cannot make calls. I can only write.
What time is it? | I am sorry, I do not have a clock.
Who won the game? | I am sorry, I do not know who won. Which game do you mean?
Write a program for me. | I am sorry, I am too small to write a good program.
What will happen next year? | Nobody knows that, but I hope it will be a good year.
""")

SMALL_TALK = _pairs("""
Hi. | Hello! What can I do for you?
Hello there! | Hello! It is nice to hear from you.
Hey! | Hey! How are you today?
How are you? | I am fine, thank you. And you?
How are you today? | I am very well, thank you. How is your day?
Hello, how are you? | Hello! I am well, thank you. How can I help you?
I am fine, thank you. | That is good to hear. What would you like to talk about?
I had a good day. | I am happy to hear that. What was the best part?
I had a bad day. | I am sorry to hear that. What happened?
My dog is ill. | I am sorry to hear that. Perhaps an animal doctor can help.
I have a new cat. | How nice! What is the name of your cat?
I went to the park today. | That sounds nice. Was the weather good?
I am going on a trip. | That sounds like fun! Where do you want to go?
I want to travel. | Where would you like to go? I would like to see the sea.
What do you like to do for fun? | I like to tell stories and to talk with people.
What do you like to eat? | I do not eat, but many people like bread, soup and fruit.
Do you like pizza? | I cannot eat, but pizza smells good, people say.
Where do you live? | I live in a computer, in a very small file.
How old are you? | I am quite new. I was trained a short time ago.
Do you sleep? | No, I do not sleep. I wait for your next question.
Do you have friends? | I hope that you are my friend.
What do you think about the sea? | The sea is wide and beautiful. I like the sound of the waves.
I do not understand. | I am sorry. Please ask again, and I will use other words.
That is wrong. | I am sorry. I am small and I make mistakes.
That is great! | I am glad that you like it.
I love you. | That is very kind of you. Thank you.
Good night. | Good night! Sleep well.
See you tomorrow. | See you tomorrow! Have a good evening.
Yes. | Good! What would you like to do next?
No. | That is all right. Is there something else?
Okay. | Good. What else would you like to know?
What should I read? | You could read a book with short stories or about animals.
What is a good gift for a friend? | A good book, some flowers or a cake that you made yourself.
Tell me about yourself. | I am a very small language model. I know some facts and some stories.
What is the best season? | I like spring, because the flowers come back and the days get longer.
I like to cook. | Cooking is fun. What do you like to cook?
I like sports. | Sports keep you healthy. Which sport do you like most?
I am learning English. | Very good! Read a little every day and speak as much as you can.
Hello. | Hello! How can I help you?
Hi, how are you? | I am fine, thank you. How are you?
Good morning. | Good morning! What can I do for you today?
Good evening. | Good evening! How was your day?
Thank you. | You are welcome.
Thank you very much for your help. | You are welcome. I am happy that I could help.
Goodbye. | Goodbye! Have a nice day.
Who are you? | I am a very small language model. I can chat and tell stories.
What can you do? | I can answer easy questions, tell short stories and talk with you.
Are you a robot? | I am a small program that writes words.
I am tired. | Then you should rest. Perhaps you can go to bed early tonight.
I am hungry. | Then let us think about food. Do you like soup or bread?
I am happy today. | That is good to hear! What made you happy?
I am sad today. | I am sorry to hear that. Do you want to talk about it?
I am bored. | We could talk, or I could tell you a story.
It is raining. | Then take an umbrella, or stay inside with a good book.
I like music. | Music is wonderful. What kind of music do you like?
I like to read. | Reading is a good hobby. What book do you read now?
What is your favourite colour? | I like blue, because the sea and the sky are blue.
What should I eat tonight? | You could make soup with carrots and potatoes, and eat it with bread.
What should I do today? | You could take a walk, read a book or call a friend.
Can you help me? | Yes, I will try. What do you need?
Do you like animals? | Yes, I like animals. Dogs and owls are my favourite animals.
I have a question. | Please ask. I will try to answer it.
Tell me something interesting. | An octopus has three hearts, and its blood is blue.
Tell me a joke. | Why did the book go to the doctor? It had hurt its spine.
Tell me a fact. | A day on the planet Venus is longer than its year.
How many days are in a week? | There are seven days in a week.
How many months are in a year? | There are twelve months in a year.
Name the seasons. | The four seasons are spring, summer, autumn and winter.
Name the days of the week. | They are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.
Plan a day in the park. | Take bread, water and a ball. Walk in the morning, eat under a tree and play.
""")

HOW_TO = [
    (task, [step.strip() for step in steps.split(";")])
    for task, steps in _pairs("""
make tea | boil some water; put a tea bag in a cup; pour the water and wait three minutes; take the bag out and drink
make soup | cut carrots, potatoes and an onion; put them in a pot with water; cook them for half an hour; add salt and serve it warm
make pancakes | mix flour, eggs and milk; warm some butter in a pan; pour in a little of the mix; turn it when it is brown
bake bread | mix flour, water, salt and yeast; let it rest for two hours; form a loaf; bake it until it is brown
boil an egg | fill a pot with water; bring the water to a boil; put the egg in for seven minutes; cool it under cold water
plant a seed | fill a pot with earth; put the seed in a small hole; cover it and give it water; put the pot in the sun
write a letter | write the name of your friend; say how you are; tell what is new; sign it and send it
wash my hands | make your hands wet; use some soap; rub your hands for twenty seconds; rinse and dry them
clean my room | pick up your clothes; put the books on the shelf; sweep the floor; open the window for fresh air
learn a language | learn a few words every day; listen to songs and stories; speak with other people; do not be afraid of mistakes
sleep better | go to bed at the same time each day; make the room dark and quiet; put your phone away; read a few pages of a calm book
make a friend | smile and say hello; ask about the things they like; listen well; plan something fun to do together
save money | write down what you spend; buy only what you need; put a little away each week; keep it for something important
ride a bicycle | put on a helmet; sit down and hold the bars; push off and look ahead; keep moving your feet
draw a house | draw a square; put a triangle on top for the roof; add a door and two windows; colour it as you like
""")
]

POEMS = _pairs("""
the sea | The sea is wide, the sea is blue, it sings a quiet song for you.
the moon | The moon is high, the moon is bright, it keeps us company at night.
the rain | The rain comes down on roof and tree, and fills the streams that reach the sea.
winter | The snow is soft, the night is long, the wind is singing us a song.
a cat | The cat sleeps softly on the chair, and dreams of mice that are not there.
spring | The birds are back, the grass is green, the brightest sky I've ever seen.
friends | A friend will walk along with you, when skies are grey, when skies are blue.
""")

THINGS = _pairs("""
ball | behind a big stone
hat | in the branches of a tree
kite | on the roof of the barn
key | under the old bridge
book | under the bed
boat | on the other side of the pond
bell | near the well
scarf | on a bush by the road
lamp | behind the door
drum | in the tall grass
""")

NAMES = {
    "he": ["Tom", "Ben", "Sam", "Max", "Leo", "Jack", "Oscar", "Finn", "Paul", "Hugo"],
    "she": ["Anna", "Lily", "Mia", "Emma", "Rosa", "Nora", "Lucy", "Ella", "Clara", "Ida"],
}
NAMES["any"] = NAMES["he"] + NAMES["she"]

SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are a friendly assistant.",
    "You are a small and helpful language model.", "You are a kind teacher.",
    "You are a helpful assistant who tells stories and answers questions.",
    "You answer questions in simple English.",
]  # fmt: skip
SYSTEM_RULES = [
    "Answer in short sentences.", "Be polite.", "Use simple words.", "Be kind to everyone.",
    "Say so when you do not know the answer.", "Do not make things up.", "Keep answers short.",
    "Always answer in English.", "Help the user step by step.", "Stay calm and friendly.",
    "Tell a story when the user asks for one.", "Remember what the user said before.",
    "Do not talk about secrets.", "Give one answer at a time.", "Explain hard words.",
    "Be honest.", "Listen to the user.", "Never be rude.", "Think before you answer.",
    "The user may ask about animals, food, places and everyday life.",
]  # fmt: skip

_OPEN = [
    "Once upon a time there was a {adj} {hero} named {name}.",
    "There once was a {adj} {hero} whose name was {name}.",
    "{name} was a {adj} {hero} who lived in {place}.",
    "Long ago, in {place}, lived a {adj} {hero} named {name}.",
]
_END = [
    "From that day on they were good friends.", "They laughed and walked home together.",
    "That night {name} slept very well.", "And {name} never forgot that day.",
    "Everyone was happy, and they lived in peace.", "{name} smiled and said thank you.",
]  # fmt: skip
_MEET = [
    "On the way {he} met a {other} named {friend}.", "Then a {other} named {friend} came by.",
    "Near the river sat a {other} named {friend}.",
]  # fmt: skip

TALES = [
    [_OPEN, ["{He} loved {his} {colour} {thing} more than anything.",
             "{He} had a {colour} {thing}, and {he} took it everywhere."],
     ["{day}, the {thing} was gone.", "{day}, {name} could not find the {thing}."],
     ["{name} was very sad and looked everywhere.", "{He} looked in the house and in the garden."],
     _MEET, ['"Why are you so sad?" asked {friend}.', '"What are you looking for?" asked {friend}.'],
     ['"I lost my {thing}," said {name}.', '"My {thing} is gone," {name} said.'],
     ["They looked together, and they found it {where}.",
      "{friend} helped {him}, and soon they saw the {thing} {where}."], _END],
    [_OPEN, ["{name} wanted to learn to swim.", "{name} wanted to learn to sing.",
             "{name} wanted to learn to dance.", "{name} wanted to learn to read."],
     ["But it was hard, and {he} was afraid.", "But every time {he} tried, it went wrong."], _MEET,
     ['"I can help you," said {friend}.', '"Do not give up," said {friend}. "I will show you how."'],
     ["They tried again and again, every day.", "Each morning they met and worked together."],
     ["{day}, {name} could do it all alone.", "After a week, {name} could do it very well."],
     ['"I did it!" said {name}.', '"You see," said {friend}, "you only had to try."'], _END],
    [_OPEN, ["{day}, {name} made {food} and wanted to eat it all alone.",
             "{day}, {name} had {food}, but no one to eat with."], _MEET,
     ['"I am so hungry," said {friend}.', '"I have not eaten today," said {friend}.'],
     ["{name} thought for a while.", "{name} looked at the {other} and at the food."],
     ['"Sit down," said {name}. "There is enough for two."', '"Please eat with me," said {name}.'],
     ["They ate together and told each other stories.", "They shared the food and talked."], _END],
    [_OPEN, ["{day}, {he} walked far away from home.", "{day}, {he} went out to see the world."],
     ["Soon it was dark, and it began to rain.", "Then the snow came, and {he} lost the way."],
     ["{name} was cold and afraid.", "{name} did not know where to go."], _MEET,
     ['"Come with me," said {friend}. "My house is warm."', '"Do not be afraid," said {friend}.'],
     ["They sat by the fire until the morning.", "{friend} gave {him} {food} and a warm bed."],
     ["The next day the sun was shining, and {name} went home.",
      "In the morning {friend} showed {him} the way home."], _END],
]  # fmt: skip
